/*
 * buffer.h: the buffer protocol under the limited API of 3.10.
 *
 * The limited API has it from 3.11 on. 3.10 has the same functions, struct and slots,
 * laid out alike, only not declared for code that keeps to the limited API; so they
 * are declared here. Include after Python.h.
 */
#ifndef BRIM_PYTHON_BUFFER_H
#define BRIM_PYTHON_BUFFER_H

#if Py_LIMITED_API + 0 < 0x030B0000

typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len;
    Py_ssize_t itemsize;
    int readonly;
    int ndim;
    char *format;
    Py_ssize_t *shape;
    Py_ssize_t *strides;
    Py_ssize_t *suboffsets;
    void *internal;
} Py_buffer;

#define PyBUF_WRITABLE     0x0001
#define PyBUF_FORMAT       0x0004
#define PyBUF_ND           0x0008
#define PyBUF_STRIDES      (0x0010 | PyBUF_ND)
#define PyBUF_C_CONTIGUOUS (0x0020 | PyBUF_STRIDES)
#define PyBUF_F_CONTIGUOUS (0x0040 | PyBUF_STRIDES)
#define PyBUF_RECORDS_RO   (PyBUF_STRIDES | PyBUF_FORMAT)

#define Py_bf_getbuffer     1
#define Py_bf_releasebuffer 2

int PyObject_GetBuffer(PyObject *object, Py_buffer *view, int flags);
void PyBuffer_Release(Py_buffer *view);

#endif
#endif
