#include "text.h"

#include <stdarg.h>
#include <stdio.h>

void sg_text_add(struct sg_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t left = text->length < text->size ? text->size - text->length : 0;
    int wrote = vsnprintf(left ? text->at + text->length : NULL, left, format, arguments);
    va_end(arguments);
    if (wrote > 0)
        text->length += (size_t)wrote;
}
