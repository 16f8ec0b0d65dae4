/* Each row of a verb's table stands for nothing; rows.h includes this before it takes one kind of row. Not for others to include. */
#undef OPERANDS
#undef USAGE
#undef ABOUT
#undef TERM
#undef OPTION
#undef STATUS
#define OPERANDS(value)
#define USAGE(text)
#define ABOUT(text)
#define TERM(word, text)
#define OPTION(name, letter, argument, value, text, initial, more)
#define STATUS(text)
