# bash completion for segalloc and segalloc-train: the verbs and options that their --help prints. In zsh, after
# `autoload -U bashcompinit && bashcompinit`, it is sourced.
_segalloc_options() {
    "$@" --help 2>/dev/null | grep -oE -- '^ {2,6}(-[a-z], )?--[a-z][a-z-]*' | grep -oE -- '--[a-z][a-z-]*' | sort -u
}
_segalloc() {
    local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]} before=${COMP_WORDS[COMP_CWORD - 1]}
    if [ "$COMP_CWORD" = 1 ]; then
        COMPREPLY=($(compgen -W "$(segalloc --help 2>/dev/null | sed -n 's/^  \([a-z]*\)  .*/\1/p') --help --version" -- "$word"))
    elif [ "$verb" = trace ] && [ "$COMP_CWORD" = 2 ]; then
        COMPREPLY=($(compgen -W "info cat export import" -- "$word"))
    elif [ "$verb" = trace ] && [ "$before" = --format ]; then
        COMPREPLY=($(compgen -W "$(segalloc trace --help 2>/dev/null | sed -n 's/^            \([a-z]*\)  *[a-z].*/\1/p')" -- "$word"))
    elif [ "$before" = --conf ] || [ "$before" = --help-options ]; then
        COMPREPLY=($(compgen -W "$(segalloc conf 2>/dev/null | sed 's/ .*//')" -- "${word##*,}"))
        compopt -o nospace
    elif [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$(_segalloc_options segalloc "$verb")" -- "$word"))
    elif [ "$verb" = run ] || [ "$verb" = rehearse ] || [ "$verb" = doctor ]; then
        COMPREPLY=($(compgen -c -f -- "$word"))
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}
_segalloc_train() {
    local word=${COMP_WORDS[COMP_CWORD]}
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$(_segalloc_options segalloc-train)" -- "$word"))
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}
complete -o filenames -F _segalloc segalloc
complete -o filenames -F _segalloc_train segalloc-train
