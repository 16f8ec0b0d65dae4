# fish completion for segalloc: the verbs, options, formats and keys that the program itself prints
function __segalloc_verbs
    segalloc --help 2>/dev/null | string replace -rf '^  ([a-z]+)  +(.*)' '$1\t$2'
end
function __segalloc_options
    set -l words (commandline -opc)
    segalloc $words[2] --help 2>/dev/null | string replace -rf '^ {2,6}(?:-[a-z], )?(--[a-z][a-z-]*).*' '$1'
end
function __segalloc_formats
    segalloc trace --help 2>/dev/null | string replace -rf '^ {12}([a-z]+) +([a-z].*)' '$1\t$2'
end
# What stands before the last comma stays.
function __segalloc_keys
    set -l said (commandline -ct | string replace -rf '(.*,).*' '$1')
    segalloc conf 2>/dev/null | string replace -r ' .*' '' | string replace -r '^' "$said" | string replace -r '$' ':'
end
function __segalloc_at
    test (count (commandline -opc)) -eq $argv[1]
end
function __segalloc_after
    contains -- (commandline -opc)[-1] $argv
end
complete -c segalloc -n '__segalloc_at 1' -f -a '(__segalloc_verbs)'
complete -c segalloc -n '__segalloc_at 2; and __segalloc_after trace' -f -a 'info cat export import'
complete -c segalloc -n '__segalloc_after --format' -f -a '(__segalloc_formats)'
complete -c segalloc -n '__segalloc_after --conf' -f -a '(__segalloc_keys)'
complete -c segalloc -n 'string match -q -- "-*" (commandline -ct); and not __segalloc_at 1' -f -a '(__segalloc_options)'
