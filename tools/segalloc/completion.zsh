#compdef segalloc
# zsh completion for segalloc: the verbs, options, formats and keys that the program itself prints
_segalloc() {
    local verb=${words[2]} word=${words[CURRENT]} before=${words[CURRENT-1]}
    local -a offered
    if (( CURRENT == 2 )); then
        offered=(${(f)"$(segalloc --help 2>/dev/null | sed -n 's/^  \([a-z]*\)  .*/\1/p')"} --help --version)
    elif [[ $verb == trace ]] && (( CURRENT == 3 )); then
        offered=(info cat export import)
    elif [[ $verb == trace && $before == --format ]]; then
        offered=(${(f)"$(segalloc trace --help 2>/dev/null | sed -n 's/^            \([a-z]*\)  *[a-z].*/\1/p')"})
    elif [[ $before == --conf ]]; then
        compset -P '*,'
        offered=(${(f)"$(segalloc conf 2>/dev/null | sed 's/ .*//')"})
        compadd -S : -- $offered
        return
    elif [[ $before == --help-options ]]; then
        offered=(${(f)"$(segalloc conf 2>/dev/null | sed 's/ .*//')"})
    elif [[ $word == -* ]]; then
        offered=(${(f)"$(segalloc "$verb" --help 2>/dev/null | grep -oE -- '^ {2,6}(-[a-z], )?--[a-z][a-z-]*' |
            grep -oE -- '--[a-z][a-z-]*' | sort -u)"})
    else
        _files
        return
    fi
    compadd -- $offered
}
_segalloc "$@"
