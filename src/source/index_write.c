/*
 * index_write.c: makes an index in one pass, with two bounded buffers.
 *
 * The source's scan adds records. They are packed into pages in a small buffer, which is written
 * when it is full. The header, without which the file is not valid, is written last; then the file
 * gets its name (base/file_write.h). Before that the data file is checked again: if it changed
 * meanwhile, the entries may fit no state of it.
 */
#include "base/progress.h"
#include "source/index_file.h"

#include <stdio.h>
#include <sys/stat.h>

#define MOST_BYTES 65536 /* of the buffer */

struct brim__index_writer {
    struct brim__new_file file;
    const struct brim__file *data;
    struct brim__opening *opening;
    struct brim__index_packer packer;
    uint64_t reported_ns;
    bool refused; /* the directory could not be written */
};

/* ------------------------------------------------------------------- pages */

static void begin_page(struct brim__index_packer *packer, size_t page) {
    packer->page = page;
    packer->to = packer->buffer + page * BRIM__INDEX_PAGE;
    packer->page_end = packer->to + BRIM__INDEX_PER_PAGE * BRIM__INDEX_ENTRY;
}

void brim__index_packer_init(struct brim__index_packer *packer, struct brim__new_file *file,
                             uint8_t *buffer, size_t pages) {
    *packer =
        (struct brim__index_packer){ .file = file, .buffer = buffer, .pages = pages, .first = 1 };
    begin_page(packer, 0);
}

static brim_status write_out(struct brim__index_packer *packer, uint64_t first, size_t pages) {
    const brim_status status = brim__new_file_write(packer->file, first * BRIM__INDEX_PAGE,
                                                    packer->buffer, pages * BRIM__INDEX_PAGE);
    packer->refused |= status != BRIM_OK;
    return status;
}

/* Called when the page in progress is full, or is the last. */
static brim_status end_page(struct brim__index_packer *packer) {
    uint8_t *page = packer->buffer + packer->page * BRIM__INDEX_PAGE;
    memset(packer->to, 0, (size_t)(page + BRIM__INDEX_HASHED - packer->to));
    brim__index_seal(page, packer->first + packer->page);
    if (packer->page + 1 < packer->pages) {
        begin_page(packer, packer->page + 1);
        return BRIM_OK;
    }
    const brim_status status = write_out(packer, packer->first, packer->pages);
    packer->first += packer->pages;
    begin_page(packer, 0);
    return status;
}

brim_status brim__index_pack(struct brim__index_packer *packer,
                             const struct brim__index_entry *entry) {
    assert(entry->length < BRIM__INDEX_LENGTH);
    const struct brim__index_item item = { .offset = entry->offset,
                                           .length_kind = entry->length | (uint64_t)entry->kind
                                                                              << 48,
                                           .a = entry->a,
                                           .b = entry->b };
    memcpy(packer->to, &item, sizeof item);
    packer->to += sizeof item;
    packer->count++;
    packer->largest = brim__max(packer->largest, entry->length);
    packer->total += entry->length;
    return packer->to == packer->page_end ? end_page(packer) : BRIM_OK;
}

brim_status brim__index_packer_end(struct brim__index_packer *packer) {
    brim_status status = BRIM_OK;
    if (packer->to != packer->buffer + packer->page * BRIM__INDEX_PAGE) {
        status = end_page(packer);
    }
    if (status == BRIM_OK && packer->page > 0) {
        status = write_out(packer, packer->first, packer->page);
    }
    return status;
}

/* ----------------------------------------------------------------- writing */

brim_status brim__index_add(struct brim__index_writer *writer,
                            const struct brim__index_entry *entry) {
    const uint64_t bytes = writer->data->bytes;
    if (BRIM__UNLIKELY(entry->offset > bytes || entry->length > bytes - entry->offset ||
                       entry->length >= BRIM__INDEX_LENGTH)) {
        return brim__fail(BRIM_STATUS_CORRUPT,
                          "%s: a record of %llu bytes at byte %llu does not fit into the file's "
                          "%llu bytes, or is too long for an index",
                          writer->data->path, (unsigned long long)entry->length,
                          (unsigned long long)entry->offset, (unsigned long long)bytes);
    }
    return brim__index_pack(&writer->packer, entry);
}

static brim_status tell(const struct brim__index_writer *writer, uint64_t done) {
    const struct brim__opening *opening = writer->opening;
    char what[256];
    if (opening->progress == NULL) {
        return BRIM_OK;
    }
    snprintf(what, sizeof what, "indexing %s", writer->data->path);
    if (brim__progress_report(opening->progress, opening->progress_user, what, BRIM_UNIT_BYTES,
                              done, writer->data->bytes)) {
        return BRIM_OK;
    }
    return brim__fail(BRIM_STATUS_INTERRUPTED, "%s: indexing it was stopped at byte %llu of %llu",
                      writer->data->path, (unsigned long long)done,
                      (unsigned long long)writer->data->bytes);
}

brim_status brim__index_progress(struct brim__index_writer *writer, uint64_t done) {
    return brim__progress_is_due(writer->opening->progress, &writer->reported_ns)
               ? tell(writer, done)
               : BRIM_OK;
}

static brim_status check_unchanged(const struct brim__file *data) {
    struct stat facts;
    if (fstat(data->fd, &facts) == 0 && (uint64_t)facts.st_size == data->bytes &&
        (int64_t)facts.st_mtim.tv_sec * 1000000000 + facts.st_mtim.tv_nsec == data->modified_ns) {
        return BRIM_OK;
    }
    return brim__fail(
        BRIM_STATUS_CORRUPT,
        "%s: was changed while its index was made: try again once nothing writes to it",
        data->path);
}

/* Writes the remaining pages, then the header. */
static brim_status finish(struct brim__index_writer *writer,
                          const struct brim__index_recipe *recipe) {
    struct brim__index_packer *packer = &writer->packer;
    const brim_status status = brim__index_packer_end(packer);
    if (status != BRIM_OK) {
        return status;
    }
    struct brim__index_header header;
    brim__index_expect(writer->data, recipe, &header);
    header.count = packer->count;
    header.largest = packer->largest;
    header.total = packer->total;
    memset(packer->buffer, 0, BRIM__INDEX_PAGE);
    memcpy(packer->buffer, &header, sizeof header);
    brim__index_seal(packer->buffer, 0);
    return write_out(packer, 0, 1);
}

brim_status brim__index_refused(brim_status status, enum brim__index_home home) {
    char text[BRIM__DETAIL_BYTES];
    brim__copy_text(text, sizeof text, brim_detail());
    return home == BRIM__INDEX_CACHE
               ? brim__fail(status,
                            "%s; an index must be written: give index=beside to keep it beside the "
                            "data, or another index directory (index_dir of the runtime, "
                            "--index-dir on the command line)",
                            text)
               : brim__fail(status,
                            "%s; an index must be written: give index=cache to keep it in the "
                            "cache "
                            "directory instead",
                            text);
}

static brim_status write_index(struct brim__index_writer *writer, const char *path,
                               const struct brim__index_recipe *recipe) {
    brim_status status = brim__make_directory_of(path);
    if (status == BRIM_OK) {
        status = brim__new_file_begin(&writer->file, path);
    }
    if (status != BRIM_OK) {
        writer->refused = true;
        return status;
    }
    status = recipe->scan(recipe->self, writer->data, writer);
    if (status == BRIM_OK) {
        status = finish(writer, recipe);
    }
    if (status == BRIM_OK) {
        status = check_unchanged(writer->data);
    }
    if (status == BRIM_OK) {
        status = tell(writer, writer->data->bytes);
    }
    if (status == BRIM_OK) {
        status = brim__new_file_commit(&writer->file);
        writer->refused = status != BRIM_OK;
    }
    brim__new_file_abandon(&writer->file);
    return status;
}

/* With little memory the buffers are small; the entries are the same. */
size_t brim__index_buffer(const struct brim__opening *opening, uint64_t share, size_t least,
                          size_t most) {
    brim_budget *budget = opening->arena->budget;
    const uint64_t bytes =
        budget == NULL ? most : brim__budget_available(budget, BRIM_MEMORY_HOST) / share;
    while (most > bytes && most > least) {
        most /= 2;
    }
    return most;
}

brim_status brim__index_make(const char *path, const struct brim__file *data,
                             const struct brim__index_recipe *recipe,
                             struct brim__opening *opening) {
    brim_budget *budget = opening->arena->budget;
    const size_t pages =
        brim__index_buffer(opening, 8, BRIM__INDEX_PAGE, MOST_BYTES) / BRIM__INDEX_PAGE;
    brim_status status;
    struct brim__index_writer *writer =
        brim__alloc(budget, sizeof *writer + (pages + 1) * BRIM__INDEX_PAGE, &status);
    if (writer == NULL) {
        return brim__fail_within(status, "making an index of %s", data->path);
    }
    const size_t head = (size_t)brim__align(sizeof *writer, BRIM__CACHE_LINE);
    writer->file.fd = -1;
    writer->data = data;
    writer->opening = opening;
    writer->reported_ns = brim__now();
    brim__index_packer_init(&writer->packer, &writer->file, (uint8_t *)writer + head, pages);
    status = write_index(writer, path, recipe);
    if (writer->refused || writer->packer.refused) {
        status = brim__index_refused(status, recipe->home);
    }
    brim__free(writer);
    return status;
}
