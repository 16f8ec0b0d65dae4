#compdef segalloc segalloc-train
# zsh completion for segalloc and segalloc-train. tables.py puts the tables of both programs in.
typeset -ga _segalloc_verbs _segalloc_actions
typeset -gA _segalloc_options _segalloc_arguments _segalloc_values _segalloc_conf
@TABLES@

# Offers words; what ends in : or = goes on.
_segalloc_offer() {
    compadd -S '' -- ${(M)@:#*[:=]}
    compadd -- ${@:#*[:=]}
}

# Offers what a value may be: _segalloc_value KIND.
_segalloc_value() {
    local kind=$1 key
    local -a pids
    case $kind in
    @files) _files ;;
    @folders) _files -/ ;;
    @command) _command_names -e ;;
    @pids)
        pids=(/dev/shm/segalloc-live-*(N:t:s/segalloc-live-//))
        _segalloc_offer $pids
        ;;
    @conf)
        compset -P '*,'
        if [[ $PREFIX == *:* ]]; then
            key=${PREFIX%%:*}
            compset -P '*:'
            _segalloc_value "${_segalloc_conf[$key]:-@nothing}"
        else
            _segalloc_offer ${^${(k)_segalloc_conf}}:
        fi
        ;;
    @list*)
        compset -P '*,'
        _segalloc_offer ${=kind#@list }
        ;;
    @keys) _segalloc_offer ${(k)_segalloc_conf} ;;
    @param) _segalloc_offer ${^${(k)_segalloc_conf}}= ;;
    @nothing) ;;
    *) _segalloc_offer ${=kind} ;;
    esac
}

# Completes the word at the cursor, where options begin at FIRST: _segalloc_words VERB FIRST.
_segalloc_words() {
    local verb=$1 word=${words[CURRENT]} before= command=
    local arguments=${_segalloc_arguments[$verb]-}
    local -i i
    local -a offered
    for ((i = $2; i < CURRENT; i++)); do
        if [[ ${words[i]} == -- ]]; then
            command=$((i + 1))
            break
        elif [[ -n ${_segalloc_values[$verb ${words[i]}]-} ]]; then
            ((++i == CURRENT)) && before=${words[i-1]}
        elif [[ $arguments == @command && ${words[i]} != -* ]]; then
            command=$i
            break
        fi
    done
    if [[ -n $before ]]; then
        _segalloc_value "${_segalloc_values[$verb $before]}"
    elif [[ -n $command && $arguments == @command ]] && ((CURRENT > command)); then
        shift $((command - 1)) words
        ((CURRENT -= command - 1))
        _normal
    elif [[ -z $command && $word == --*=* ]]; then
        compset -P '*='
        _segalloc_value "${_segalloc_values[$verb ${word%%=*}]:-@nothing}"
    elif [[ -z $command && $word == -* ]]; then
        offered=(${(f)_segalloc_options[$verb]-})
        _describe -o option offered
    else
        _segalloc_value $arguments
    fi
}

_segalloc() {
    if [[ ${words[1]:t} == segalloc-train ]]; then
        _segalloc_words train 2
    elif ((CURRENT == 2)); then
        _describe verb _segalloc_verbs
        [[ ${words[2]} == -* ]] && compadd -- --help --version
    elif ((CURRENT == 3)) && [[ ${words[2]} == trace ]]; then
        _describe action _segalloc_actions
    else
        _segalloc_words ${words[2]} 3
    fi
}
_segalloc "$@"
