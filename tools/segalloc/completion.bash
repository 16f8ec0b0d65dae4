# bash completion for segalloc: the verbs and options that its --help prints
_segalloc() {
    local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]}
    if [ "$COMP_CWORD" = 1 ]; then
        COMPREPLY=($(compgen -W "$(segalloc --help 2>/dev/null | sed -n 's/^  \([a-z]*\)  .*/\1/p') --help --version" -- "$word"))
    elif [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$(segalloc "$verb" --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]*')" -- "$word"))
    elif [ "$verb" = run ] || [ "$verb" = rehearse ] || [ "$verb" = doctor ]; then
        COMPREPLY=($(compgen -c -f -- "$word"))
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}
complete -o filenames -F _segalloc segalloc
