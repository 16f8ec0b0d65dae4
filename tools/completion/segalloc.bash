# bash completion for segalloc and segalloc-train. tables.py puts the tables of both programs in.
declare -ga _segalloc_verbs _segalloc_actions
declare -gA _segalloc_options _segalloc_arguments _segalloc_values _segalloc_conf
@TABLES@

# Offers those of some words that begin as WORD does: _segalloc_offer WORD PREFIX WORDS. What ends in : or = goes on.
_segalloc_offer() {
    local IFS=$' \t\n' reply
    COMPREPLY=($(compgen -P "$2" -W "$3" -- "$1"))
    for reply in "${COMPREPLY[@]}"; do
        [[ $reply == *[:=] ]] && compopt -o nospace 2>/dev/null
    done
}

# Offers what a value may be: _segalloc_value KIND WORD PREFIX. The prefix stands before the word and stays.
_segalloc_value() {
    local kind=$1 word=$2 prefix=$3 last=${2##*,} key pid pids= IFS=$'\n'
    case $kind in
    @files | @folders)
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(if [ "$kind" = @files ]; then compgen -P "$prefix" -f -- "$word"; else compgen -P "$prefix" -d -- "$word"; fi))
        ;;
    @command)
        COMPREPLY=($(compgen -c -- "$word"))
        [[ $word != */* ]] || _segalloc_value @files "$word" ""
        ;;
    @pids)
        for pid in /dev/shm/segalloc-live-*; do
            [ -e "/proc/${pid##*-}" ] && pids="$pids ${pid##*-}"
        done
        _segalloc_offer "$word" "$prefix" "$pids"
        ;;
    @conf)
        key=${last%%:*}
        prefix=$prefix${word%"$last"}
        if [[ $last == *:* ]]; then
            _segalloc_value "${_segalloc_conf[$key]:-@nothing}" "${last#*:}" "$prefix$key:"
        else
            _segalloc_offer "$last" "$prefix" "$(printf '%s: ' "${!_segalloc_conf[@]}")"
        fi
        ;;
    @list*)
        _segalloc_offer "$last" "$prefix${word%"$last"}" "${kind#@list }"
        ;;
    @keys)
        _segalloc_offer "$word" "$prefix" "${!_segalloc_conf[*]}"
        ;;
    @param)
        _segalloc_offer "$word" "$prefix" "$(printf '%s= ' "${!_segalloc_conf[@]}")"
        ;;
    @nothing) ;;
    *)
        _segalloc_offer "$word" "$prefix" "$kind"
        ;;
    esac
}

# Completes the last of `words`, whose options begin at FIRST: _segalloc_words VERB FIRST.
_segalloc_words() {
    local verb=$1 i=$2 last=$((${#words[@]} - 1)) word=${words[-1]} before= command=
    local arguments=${_segalloc_arguments[$verb]-}
    for (( ; i < last; i++)); do
        if [ "${words[i]}" = -- ]; then
            command=$((i + 1))
            break
        elif [ -n "${_segalloc_values["$verb ${words[i]}"]-}" ]; then
            ((++i == last)) && before=${words[i - 1]}
        elif [[ $arguments == @command && ${words[i]} != -* ]]; then
            command=$i
            break
        fi
    done
    if [ -n "$before" ]; then
        _segalloc_value "${_segalloc_values["$verb $before"]}" "$word" ""
    elif [ -n "$command" ] && [ "$arguments" = @command ] && ((last > command)); then
        # bash-completion, where it is, has what that command takes.
        if [ ${#words[@]} = ${#COMP_WORDS[@]} ] && declare -F _command_offset >/dev/null; then
            _command_offset "$command"
        else
            _segalloc_value @files "$word" ""
        fi
    elif [ -z "$command" ] && [[ $word == --*=* ]]; then
        _segalloc_value "${_segalloc_values["$verb ${word%%=*}"]:-@nothing}" "${word#*=}" "${word%%=*}="
    elif [ -z "$command" ] && [[ $word == -* ]]; then
        _segalloc_offer "$word" "" "$(printf '%s\n' "${_segalloc_options[$verb]-}" | sed 's/:.*//')"
    else
        _segalloc_value "$arguments" "$word" ""
    fi
}

_segalloc() {
    local -a words
    local line=${COMP_LINE:0:COMP_POINT} reply tail whole replies=()
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    whole=${words[-1]}
    COMPREPLY=()
    if [[ ${words[0]##*/} == segalloc-train ]]; then
        _segalloc_words train 1
    elif ((${#words[@]} == 2)); then
        _segalloc_offer "$whole" "" "${_segalloc_verbs[*]%%:*}"
        [[ $whole != -* ]] || _segalloc_offer "$whole" "" "--help --version"
    elif ((${#words[@]} == 3)) && [ "${words[1]}" = trace ]; then
        _segalloc_offer "$whole" "" "${_segalloc_actions[*]%%:*}"
    else
        _segalloc_words "${words[1]}" 2
    fi
    # bash has divided the word at : and =, and replaces the last part only.
    tail=$whole
    [[ $COMP_WORDBREAKS == *:* ]] && tail=${tail##*:}
    [[ $COMP_WORDBREAKS == *=* ]] && tail=${tail##*=}
    for reply in "${COMPREPLY[@]}"; do
        replies+=("${reply:${#whole} - ${#tail}}")
    done
    COMPREPLY=("${replies[@]}")
}
complete -F _segalloc segalloc segalloc-train
