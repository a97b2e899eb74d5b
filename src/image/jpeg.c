/*
 * jpeg.c: the pixels of a region of a JPEG, through libjpeg-turbo.
 *
 * Only the columns of the region and a margin are transformed. Rows above the region are read but
 * not transformed; rows below it are not read. The pixels are bit-identical to those of decoding
 * the whole image. libjpeg's treatment of edges decides the margin:
 *
 *     chroma is interpolated between neighbours, so the first and the last pixel of
 *     what is cut out differ: one pixel more is taken on either side, which libjpeg
 *     widens on the left to whole blocks
 *     what is cut out must not be so narrow that libjpeg changes its method
 *     a progressive image whose last bits are missing is smoothed across blocks: it is
 *     transformed in its full width, as are rare samplings at reduced scale
 *
 * No rows above the region are needed: libjpeg keeps the row before it.
 *
 * A decoder is made for each image, on the stack; its memory comes from the caller's
 * (jpeg_memory.h). libjpeg's error function must not return: fail() jumps back to
 * brim__jpeg_decode, and nothing in between has to be undone. libjpeg's warnings are errors too if
 * they mean that data is missing or wrong. Damage in parts that are not read is not found.
 */
#include "image/jpeg_rough.h"

#include <jerror.h>
#include <setjmp.h>

/* Each scan goes through the whole image, even if it has only a few bytes. Scans are counted while
 * they are read, because their number is known only after the whole file was read. Memory does not
 * grow with them. A small image may have this many, a larger one as many as most_work allows. */
#define MOST_SCANS 1000

struct decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    struct brim__jpeg_memory memory;
    struct jpeg_memory_mgr *first_memory; /* libjpeg's own; NULL: still in use */
    const struct brim__decoding *decoding;
    int most_scans;
    brim_status status;
    jmp_buf failed;
};

static struct decoder *decoder_of(j_common_ptr jpeg) {
    return jpeg->client_data;
}

static void fail(struct decoder *decoder, brim_status status) __attribute__((noreturn));
static void fail(struct decoder *decoder, brim_status status) {
    decoder->status = status;
    longjmp(decoder->failed, 1);
}

/* ----------------------------------------------------------------- errors */

/* The error has libjpeg's own text and the place that it had reached. */
static void fail_as_libjpeg_says(j_common_ptr jpeg) __attribute__((noreturn));
static void fail_as_libjpeg_says(j_common_ptr jpeg) {
    struct decoder *decoder = decoder_of(jpeg);
    const struct brim__input *input = decoder->decoding->input;
    char text[JMSG_LENGTH_MAX];
    const uint64_t next = brim__min(input->next, input->bytes);
    const uint64_t left = brim__min(decoder->source.bytes_in_buffer, next);
    decoder->errors.format_message(jpeg, text);
    fail(decoder,
         brim__fail(BRIM_STATUS_CORRUPT, "is a damaged JPEG: near byte %llu of %llu: %s",
                    (unsigned long long)(next - left), (unsigned long long)input->bytes, text));
}

static void on_error(j_common_ptr jpeg) {
    struct decoder *decoder = decoder_of(jpeg);
    if (decoder->errors.msg_code != JERR_OUT_OF_MEMORY) {
        fail_as_libjpeg_says(jpeg);
    }
    if (decoder->first_memory == NULL) {
        fail(decoder,
             brim__fail(BRIM_STATUS_MEMORY, "the system refused memory for a JPEG decoder"));
    }
    fail(decoder,
         brim__fail(
             BRIM_STATUS_CORRUPT,
             "is a JPEG that needs more memory than the %llu bytes that follow from its header",
             (unsigned long long)decoder->memory.bytes));
}

/* Warnings that do not mean that pixels are wrong. */
static bool is_harmless(int code) {
    return code == JWRN_ADOBE_XFORM || code == JWRN_BOGUS_PROGRESSION ||
           code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR;
}

static void on_message(j_common_ptr jpeg, int level) {
    const struct decoder *decoder = decoder_of(jpeg);
    if (level < 0 && !decoder->decoding->damaged && !is_harmless(decoder->errors.msg_code)) {
        fail_as_libjpeg_says(jpeg);
    }
}

static int scans_allowed(const struct brim__decoding *decoding) {
    const uint64_t pixels = (uint64_t)decoding->info->width * decoding->info->height;
    return decoding->most_work == 0 ? MOST_SCANS
                                    : (int)brim__min(decoding->most_work / pixels, MOST_SCANS);
}

/* Called for each row of blocks while the scans of a file with several are read. */
static void on_progress(j_common_ptr jpeg) {
    struct decoder *decoder = decoder_of(jpeg);
    if (brim__stopped(decoder->decoding->input->stop)) {
        fail(decoder, brim__interrupted());
    }
    if (decoder->jpeg.input_scan_number <= decoder->most_scans) {
        return;
    }
    const char *change =
        decoder->most_scans < MOST_SCANS ? ": raise decode's max_pixels if the file is right" : "";
    fail(decoder, brim__fail(BRIM_STATUS_CORRUPT,
                             "is a JPEG of %ux%u pixels and more than %d scans, each of which "
                             "processes all pixels: a scan bomb%s",
                             decoder->decoding->info->width, decoder->decoding->info->height,
                             decoder->most_scans, change));
}

/* ----------------------------------------------------------------- source */

static void source_begin(j_decompress_ptr jpeg) {
    (void)jpeg;
}

static boolean source_fill(j_decompress_ptr jpeg) {
    static const JOCTET end[] = { 0xff, JPEG_EOI };
    struct decoder *decoder = decoder_of((j_common_ptr)jpeg);
    const uint8_t *data;
    size_t bytes;
    const brim_status status = brim__input_next(decoder->decoding->input, &data, &bytes);
    if (status != BRIM_OK) {
        fail(decoder, status);
    }
    if (bytes == 0) {
        WARNMS(jpeg, JWRN_JPEG_EOF);
        data = end;
        bytes = sizeof end;
    }
    decoder->source.next_input_byte = data;
    decoder->source.bytes_in_buffer = bytes;
    return TRUE;
}

static void source_skip(j_decompress_ptr jpeg, long count) {
    struct decoder *decoder = decoder_of((j_common_ptr)jpeg);
    struct jpeg_source_mgr *source = &decoder->source;
    struct brim__input *input = decoder->decoding->input;
    if (count <= 0) {
        return;
    }
    if ((size_t)count <= source->bytes_in_buffer) {
        source->next_input_byte += count;
        source->bytes_in_buffer -= (size_t)count;
        return;
    }
    const uint64_t ahead = (size_t)count - source->bytes_in_buffer;
    brim__input_seek(input, input->next + brim__min(ahead, input->bytes - input->next));
    source->bytes_in_buffer = 0;
}

static void source_end(j_decompress_ptr jpeg) {
    (void)jpeg;
}

/* ----------------------------------------------------------------- colour */

/* The colour space to request from libjpeg. */
static J_COLOR_SPACE color_of(const struct brim__decoding *decoding) {
    if (decoding->info->components == 4) {
        return JCS_CMYK;
    }
    return decoding->info->components == 1 && brim__color_pixel(decoding->color) == 1
               ? JCS_GRAYSCALE
               : JCS_EXT_RGBA;
}

/* color * key / 255, rounded, as Pillow does it. */
static uint8_t scale_by(uint32_t color, uint32_t key) {
    const uint32_t product = color * key + 128;
    return (uint8_t)((product + (product >> 8)) >> 8);
}

/* Pillow treats every CMYK JPEG as inverted, as Adobe writes them. */
static void cmyk_to_rgba(uint8_t *row, uint32_t width) {
    for (uint32_t i = 0; i < width; i++) {
        uint8_t *pixel = row + 4 * (size_t)i;
        const uint8_t key = pixel[3];
        for (uint32_t c = 0; c < 3; c++) {
            pixel[c] = (uint8_t)(key - scale_by(255u - pixel[c], key));
        }
        pixel[3] = 255;
    }
}

/* Works in place: a pixel is read before its byte is overwritten. */
static void rgba_to_gray(uint8_t *row, uint32_t width) {
    for (uint32_t i = 0; i < width; i++) {
        const uint8_t *pixel = row + 4 * (size_t)i;
        row[i] = brim__luma(pixel[0], pixel[1], pixel[2]);
    }
}

/* Converts libjpeg's pixels of a row of the region, in place, to the pixels that the caller
 * wants. */
static void convert(const struct decoder *decoder, uint8_t *row) {
    const struct brim__decoding *decoding = decoder->decoding;
    if (decoder->jpeg.out_color_space == JCS_CMYK) {
        cmyk_to_rgba(row, decoding->width);
    }
    if (decoder->jpeg.output_components == 4 && brim__color_pixel(decoding->color) == 1) {
        rgba_to_gray(row, decoding->width);
    }
}

/* ----------------------------------------------------------------- region */

/* Compares the header with brim's own reading of it, by which the memory was sized. */
static void check_header(struct decoder *decoder) {
    const struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
    const struct brim__image_info *info = decoder->decoding->info;
    bool same = jpeg->image_width == info->width && jpeg->image_height == info->height &&
                jpeg->num_components == info->components &&
                (jpeg->progressive_mode != FALSE) == info->progressive && !jpeg->arith_code &&
                info->whole == (info->progressive || jpeg->comps_in_scan < jpeg->num_components);
    for (int c = 0; same && c < jpeg->num_components; c++) {
        same = jpeg->comp_info[c].h_samp_factor == info->horizontal[c] &&
               jpeg->comp_info[c].v_samp_factor == info->vertical[c];
    }
    if (!same) {
        fail(decoder, brim__fail(BRIM_STATUS_CORRUPT,
                                 "is a JPEG whose header has changed since it was first read"));
    }
}

/* Whether libjpeg smooths: it guesses low frequencies that the scans have not given in full from
 * the neighbouring blocks. */
static bool is_smoothed(const struct jpeg_decompress_struct *jpeg) {
    for (int c = 0; jpeg->progressive_mode && c < jpeg->num_components; c++) {
        for (int i = 1; i < 10; i++) {
            if (jpeg->coef_bits[c][i] != 0) {
                return true;
            }
        }
    }
    return false;
}

/* At a reduced scale libjpeg compensates for part of a component's coarser sampling with larger
 * blocks. If the component still has to be upsampled, libjpeg-turbo 2.1 miscounts the samples of a
 * row that has been cut. Usual samplings are not affected. */
static bool is_miscounted(const struct jpeg_decompress_struct *jpeg) {
    for (int c = 0; c < jpeg->num_components; c++) {
        const jpeg_component_info *component = &jpeg->comp_info[c];
        const uint64_t samples =
            brim__divide_up((uint64_t)jpeg->output_width * (uint32_t)component->h_samp_factor,
                            (uint32_t)jpeg->max_h_samp_factor);
        const bool is_full = component->downsampled_width == jpeg->output_width &&
                             component->downsampled_height == jpeg->output_height;
        if (component->downsampled_width != samples && !is_full) {
            return true;
        }
    }
    return false;
}

/* Cuts to the region's columns and a margin; returns where the region begins in a row. */
static uint32_t crop(struct decoder *decoder) {
    struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
    const struct brim__decoding *decoding = decoder->decoding;
    const uint32_t step = DCTSIZE / decoding->scale * (uint32_t)jpeg->max_h_samp_factor;
    if (is_smoothed(jpeg) || is_miscounted(jpeg)) {
        return decoding->x;
    }
    const uint32_t left = decoding->x > 0 ? decoding->x - 1 : 0;
    const uint64_t right =
        brim__max((uint64_t)decoding->x + decoding->width + 1, (uint64_t)left / step * step + step);
    JDIMENSION offset = left;
    JDIMENSION width = (JDIMENSION)brim__min(right, jpeg->output_width) - left;
    jpeg_crop_scanline(jpeg, &offset, &width);
    return decoding->x - offset;
}

static void begin(struct decoder *decoder) {
    struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
    const struct brim__decoding *decoding = decoder->decoding;
    jpeg_create_decompress(jpeg);
    decoder->first_memory = jpeg->mem;
    brim__jpeg_memory_init(&decoder->memory, decoding->memory, (size_t)decoding->memory_bytes);
    jpeg->mem = &decoder->memory.manager;
    decoder->source = (struct jpeg_source_mgr){
        .init_source = source_begin,
        .fill_input_buffer = source_fill,
        .skip_input_data = source_skip,
        .resync_to_restart = jpeg_resync_to_restart,
        .term_source = source_end,
    };
    jpeg->src = &decoder->source;
    decoder->progress = (struct jpeg_progress_mgr){ .progress_monitor = on_progress };
    jpeg->progress = &decoder->progress;
    brim__input_seek(decoding->input, 0);
    jpeg_read_header(jpeg, TRUE);
    check_header(decoder);
    jpeg->out_color_space = color_of(decoding);
    jpeg->scale_num = 1;
    jpeg->scale_denom = decoding->scale;
    jpeg->dct_method = JDCT_ISLOW;
    jpeg->do_fancy_upsampling = !decoding->cheap;
}

static brim_status decode(struct decoder *decoder, brim__row_sink *sink, void *user) {
    struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
    const struct brim__decoding *decoding = decoder->decoding;
    JSAMPROW rows[MAX_SAMP_FACTOR];
    begin(decoder);
    if (brim__jpeg_is_rough(jpeg, decoding)) {
        return brim__jpeg_rough(jpeg, decoding, decoder->source.next_input_byte,
                                decoder->source.bytes_in_buffer, sink, user);
    }
    jpeg_start_decompress(jpeg);
    jpeg->progress = NULL; /* all scans have been read, unless there is only one */
    const uint32_t before = crop(decoder);
    /* the rows that libjpeg makes at a time: 1, or 2 where that is cheap */
    const uint32_t at_once = (uint32_t)jpeg->rec_outbuf_height;
    const size_t pixel = (size_t)jpeg->output_components;
    assert(at_once >= 1 && at_once <= MAX_SAMP_FACTOR);
    for (uint32_t i = 0; i < at_once; i++) {
        rows[i] = brim__jpeg_memory_take((j_common_ptr)jpeg,
                                         jpeg->output_width * pixel + BRIM__JPEG_UNALIGNED);
        rows[i] += BRIM__JPEG_UNALIGNED;
    }
    if (decoding->y > 0) {
        jpeg_skip_scanlines(jpeg, decoding->y);
    }
    for (uint32_t y = 0; y < decoding->height;) {
        const uint32_t most = (uint32_t)brim__min(at_once, decoding->height - y);
        if (brim__stopped(decoding->input->stop)) {
            return brim__interrupted();
        }
        const uint32_t made = jpeg_read_scanlines(jpeg, rows, most);
        for (uint32_t i = 0; i < made; i++, y++) {
            uint8_t *row = rows[i] + before * pixel;
            convert(decoder, row);
            const brim_status status = sink(user, row, y);
            if (status != BRIM_OK) {
                return status;
            }
        }
    }
    /* if the last row was read, report whether the file ends correctly */
    if (jpeg->output_scanline == jpeg->output_height && !decoding->damaged) {
        jpeg_finish_decompress(jpeg);
    }
    return BRIM_OK;
}

brim_status brim__jpeg_decode(const struct brim__decoding *decoding, brim__row_sink *sink,
                              void *user) {
    struct decoder decoder;
    decoder.decoding = decoding;
    decoder.most_scans = scans_allowed(decoding);
    decoder.first_memory = NULL;
    decoder.jpeg.err = jpeg_std_error(&decoder.errors);
    decoder.jpeg.client_data = &decoder;
    decoder.errors.error_exit = on_error;
    decoder.errors.emit_message = on_message;
    if (setjmp(decoder.failed) == 0) {
        decoder.status = decode(&decoder, sink, user);
    }
    if (decoder.first_memory != NULL) {
        decoder.jpeg.mem = decoder.first_memory;
    }
    jpeg_destroy_decompress(&decoder.jpeg);
    return decoder.status;
}
