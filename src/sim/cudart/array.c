#include "array.h"

#include "context.h"
#include "entry.h"
#include "error.h"

/* CUarray_format and cudaChannelFormatKind, by the bits of a channel. */
enum { KIND_SIGNED, KIND_UNSIGNED, KIND_FLOAT, KIND_NONE };
static const struct {
    int format;
    int kind;
    int bits;
} formats[] = {
    {0x01, KIND_UNSIGNED, 8}, {0x02, KIND_UNSIGNED, 16}, {0x03, KIND_UNSIGNED, 32}, {0x08, KIND_SIGNED, 8},
    {0x09, KIND_SIGNED, 16},  {0x0a, KIND_SIGNED, 32},   {0x10, KIND_FLOAT, 16},    {0x20, KIND_FLOAT, 32},
};
enum { FORMATS = sizeof formats / sizeof *formats };

/* All channels that there are have the same width: one, two or four of them. */
static bool array_parse_format(const struct cudaChannelFormatDesc *desc, int *ret_format, unsigned *ret_channels)
{
    unsigned channels = desc->w ? 4 : desc->z ? 3 : desc->y ? 2 : 1;
    if (channels == 3 || (desc->y && desc->y != desc->x) || (desc->z && desc->z != desc->x) ||
        (desc->w && desc->w != desc->x))
        return false;
    for (int i = 0; i < FORMATS; i++) {
        if (formats[i].kind == desc->f && formats[i].bits == desc->x) {
            *ret_format = formats[i].format;
            *ret_channels = channels;
            return true;
        }
    }
    return false;
}

static int bits_of(int format)
{
    for (int i = 0; i < FORMATS; i++) {
        if (formats[i].format == format)
            return formats[i].bits;
    }
    return 0;
}

struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, int kind)
{
    return (struct cudaChannelFormatDesc){x, y, z, w, kind};
}

static cudaError_t shape_of(const struct sg_rt_driver *driver, CUarray array, struct sg_rt_array_shape *ret)
{
    if (!array)
        return cudaErrorInvalidResourceHandle;
    return sg_rt_translate(driver->cuArray3DGetDescriptor(ret, array));
}

cudaError_t sg_rt_array_element(const struct sg_rt_driver *driver, CUarray array, size_t *ret)
{
    struct sg_rt_array_shape shape;
    cudaError_t error = shape_of(driver, array, &shape);
    if (error == cudaSuccess)
        *ret = (size_t)bits_of(shape.format) / 8 * shape.channels;
    return error;
}

cudaError_t sg_cudaMalloc3DArray(const struct sg_rt_driver *driver, CUarray *ret,
                                 const struct cudaChannelFormatDesc *desc, struct cudaExtent extent, unsigned flags)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess)
        return error;
    struct sg_rt_array_shape shape = {extent.width, extent.height, extent.depth, 0, 0, flags};
    if (!ret || !desc || !array_parse_format(desc, &shape.format, &shape.channels))
        return desc && ret ? cudaErrorInvalidChannelDescriptor : cudaErrorInvalidValue;
    return sg_rt_translate(driver->cuArray3DCreate(ret, &shape));
}

cudaError_t sg_cudaMallocArray(const struct sg_rt_driver *driver, CUarray *ret,
                               const struct cudaChannelFormatDesc *desc, size_t width, size_t height, unsigned flags)
{
    return sg_cudaMalloc3DArray(driver, ret, desc, (struct cudaExtent){width, height, 0}, flags);
}

cudaError_t sg_cudaFreeArray(const struct sg_rt_driver *driver, CUarray array)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess || !array)
        return error;
    return sg_rt_translate(driver->cuArrayDestroy(array));
}

cudaError_t sg_cudaArrayGetInfo(const struct sg_rt_driver *driver, struct cudaChannelFormatDesc *desc,
                                struct cudaExtent *extent, unsigned *flags, CUarray array)
{
    struct sg_rt_array_shape shape;
    cudaError_t error = sg_rt_context();
    if (error == cudaSuccess)
        error = shape_of(driver, array, &shape);
    if (error != cudaSuccess)
        return error;
    if (desc) {
        int bits = bits_of(shape.format), kind = KIND_NONE;
        for (int i = 0; i < FORMATS; i++) {
            if (formats[i].format == shape.format)
                kind = formats[i].kind;
        }
        *desc = (struct cudaChannelFormatDesc){bits, shape.channels > 1 ? bits : 0, shape.channels > 2 ? bits : 0,
                                               shape.channels > 3 ? bits : 0, kind};
    }
    if (extent)
        *extent = (struct cudaExtent){shape.width, shape.height, shape.depth};
    if (flags)
        *flags = shape.flags;
    return cudaSuccess;
}

cudaError_t sg_cudaGetChannelDesc(const struct sg_rt_driver *driver, struct cudaChannelFormatDesc *desc, CUarray array)
{
    return desc ? sg_cudaArrayGetInfo(driver, desc, NULL, NULL, array) : cudaErrorInvalidValue;
}
