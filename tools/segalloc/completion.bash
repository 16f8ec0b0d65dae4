# bash completion for segalloc: the verbs and options that its --help prints
_segalloc() {
    local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]} before=${COMP_WORDS[COMP_CWORD - 1]}
    if [ "$COMP_CWORD" = 1 ]; then
        COMPREPLY=($(compgen -W "$(segalloc --help 2>/dev/null | sed -n 's/^  \([a-z]*\)  .*/\1/p') --help --version" -- "$word"))
    elif [ "$verb" = trace ] && [ "$COMP_CWORD" = 2 ]; then
        COMPREPLY=($(compgen -W "info cat export import" -- "$word"))
    elif [ "$before" = --conf ] || [ "$before" = --help-options ]; then
        COMPREPLY=($(compgen -W "$(segalloc conf 2>/dev/null | sed 's/ .*//')" -- "${word##*,}"))
        compopt -o nospace
    elif [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$(segalloc "$verb" --help 2>/dev/null | grep -oE -- '^ {2,6}(-[a-z], )?--[a-z][a-z-]*' |
            grep -oE -- '--[a-z][a-z-]*' | sort -u)" -- "$word"))
    elif [ "$verb" = run ] || [ "$verb" = rehearse ] || [ "$verb" = doctor ]; then
        COMPREPLY=($(compgen -c -f -- "$word"))
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}
complete -o filenames -F _segalloc segalloc
