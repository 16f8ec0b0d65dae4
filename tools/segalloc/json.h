/* JSON that the tool prints, as trees of jansson's. A value is owned by the one that it was added to. A tree is printed on one line, with
   members in the order in which they were added. Where the machine has no memory left the process ends with a message and
   SG_EXIT_ERROR, so nobody else has to ask.

   For example, {"schema":"segalloc.trim/1","pid":4711,"given_bytes":0} is

       json_t *result = sg_json_object("segalloc.trim/1");
       SG_JSON_NUMBERS(result, {"pid", pid}, {"given_bytes", given});
       sg_json_print(result); */
#ifndef SG_JSON_H
#define SG_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* An object with the member "schema", or an empty one for NULL. */
json_t *sg_json_object(const char *schema);
json_t *sg_json_array(void);

/* Values. A text of NULL is null, and bytes of a text that are no UTF-8 are replaced by U+FFFD. A number beyond 2^63 - 1 is a real. A
   real is rounded to so many decimal digits. */
json_t *sg_json_text(const char *text);
json_t *sg_json_number(uint64_t value);
json_t *sg_json_real(double value, int digits);

/* Adds to an array, or to an object as its member `key`. */
void sg_json_add(json_t *array, json_t *value);
void sg_json_set(json_t *object, const char *key, json_t *value);

/* Members of the common kinds. A number that is not known is null. A ratio has six digits, and is null below 0. */
void sg_json_set_text(json_t *object, const char *key, const char *text);
void sg_json_set_flag(json_t *object, const char *key, bool value);
void sg_json_set_known(json_t *object, const char *key, uint64_t value, bool known);
void sg_json_set_signed(json_t *object, const char *key, int64_t value);
void sg_json_set_ratio(json_t *object, const char *key, double value);

/* Members that are numbers: SG_JSON_NUMBERS(object, {"allocs", allocs}, {"frees", frees}). */
struct sg_json_member {
    const char *key;
    uint64_t value;
};
void sg_json_set_numbers(json_t *object, const struct sg_json_member *member);
#define SG_JSON_NUMBERS(object, ...) \
    sg_json_set_numbers(object, (const struct sg_json_member[]){__VA_ARGS__, {NULL, 0}})

/* Prints a value without a line's end, and gives it up. sg_json_write_members() leaves out the outermost braces or brackets, so that
   more can follow: what is too large for a tree is written piece by piece. sg_json_write_key() begins a member after others. */
void sg_json_write(FILE *out, json_t *value);
void sg_json_write_members(FILE *out, json_t *value);
void sg_json_write_key(FILE *out, const char *key);

/* The text of a value, without a line's end, to be freed. Gives the value up. */
char *sg_json_line(json_t *value);

/* Prints a value as a line to stdout, and gives it up. */
void sg_json_print(json_t *value);

#endif
