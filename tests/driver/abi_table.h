/* One fact of the CUDA driver's binary interface: an enumerator's value, a type's size, a member's place and size. */
#ifndef ABI_TABLE_H
#define ABI_TABLE_H

struct abi_row {
    const char *what;
    long long value;
};

extern const struct abi_row abi_ours[], abi_theirs[];
extern const unsigned abi_ours_count, abi_theirs_count;

#endif
