/*
 * test_csv.c: the stage csv, from the bytes of files to values.
 *
 * A table of cases shows what rows come of what files; what must be refused and
 * what is a bad sample is told by the texts of the errors. One field is compared
 * with a model that walks from character to character, on random input, and
 * records of random bytes are parsed in memory of exactly their size.
 */
#include "source_util.h"

#include "plan/pipeline.h"
#include "source/csv.h"
#include "source/lines_parts.h"

#include <inttypes.h>

/* ------------------------------------------------------------------ tables */

struct table {
    brim_pipeline *pipeline;
    struct opened opened;
    uint8_t *buffer;
};

static brim_status open_text(struct table *table, const char *text) {
    memset(table, 0, sizeof *table);
    if (brim_pipeline_parse(text, &table->pipeline) != BRIM_OK) {
        fail_msg("%s", brim_detail());
    }
    struct opened *opened = &table->opened;
    brim__arena_init(&opened->arena, NULL);
    memset(&opened->source, 0xa5, sizeof opened->source);
    opened->opening =
        (struct brim__opening){ .arena = &opened->arena, .serials = &opened->serials };
    const struct brim__use *use = &table->pipeline->use[0];
    return use->stage->open(use, &opened->opening, &opened->source);
}

/* Bytes as a file and options as written; the index lies beside the file. */
static brim_status open_bytes(struct table *table, const char *options, const void *bytes,
                              size_t count) {
    char text[1024];
    const struct path path = scratch_path("t.csv");
    unlink(scratch_path("t.csv.csv.brimidx").text);
    write_file(path.text, bytes, count);
    snprintf(text, sizeof text, "csv %s index=beside %s", path.text, options);
    return open_text(table, text);
}

static void close_table(struct table *table) {
    free(table->buffer);
    close_opened(&table->opened);
    brim_pipeline_free(table->pipeline);
}

/* The record of one sample, or what fetching it says. */
static brim_status fetch_one(struct table *table, uint64_t sample, const uint8_t **record) {
    const struct brim__source *source = &table->opened.source;
    uint64_t got = 0;
    free(table->buffer);
    assert_int_equal(posix_memalign((void **)&table->buffer, 64, brim__source_buffer(source, 1)),
                     0);
    const brim_status status = fetch_run(source, sample, 1, table->buffer, record, &got);
    assert_true(status != BRIM_OK || got == 1);
    return status;
}

static size_t put(char *to, size_t used, size_t room, const void *bytes, size_t count) {
    assert_true(used + count < room);
    memcpy(to + used, bytes, count);
    return used + count;
}

/* One value as text: integers, %.17g, texts as they are. */
static size_t put_field(char *to, size_t used, size_t room, const struct brim__source_field *field,
                        const uint8_t *record) {
    char text[64];
    if (field->form != BRIM_FORM_DENSE) {
        struct brim__span span;
        memcpy(&span, record + field->view.offset, sizeof span);
        assert_true(span.count <= field->view.shape.dim[0]);
        return put(to, used, room, span.data, span.count);
    }
    const uint64_t count = field->view.shape.rank == 0 ? 1 : field->view.shape.dim[0];
    for (uint64_t i = 0; i < count; i++) {
        double value[2];
        int64_t integer;
        read_element(&field->view, record, i, value);
        memcpy(&integer, record + field->view.offset, brim_dtype_bytes(field->view.dtype));
        if (field->view.dtype == BRIM_DTYPE_I64) {
            snprintf(text, sizeof text, "%s%" PRId64, i > 0 ? " " : "", integer);
        } else if (field->view.dtype == BRIM_DTYPE_U64) {
            snprintf(text, sizeof text, "%s%" PRIu64, i > 0 ? " " : "", (uint64_t)integer);
        } else {
            snprintf(text, sizeof text, "%s%.17g", i > 0 ? " " : "", value[0]);
        }
        used = put(to, used, room, text, strlen(text));
    }
    return used;
}

/* "a:int64 b:text", then rows of "1|x". */
static void tell(struct table *table, char *to, size_t room) {
    const struct brim__source *source = &table->opened.source;
    size_t used = 0;
    for (uint32_t i = 0; i < source->field_count; i++) {
        const struct brim__source_field *field = &source->field[i];
        used +=
            (size_t)snprintf(to + used, room - used, "%s%s:%s", i > 0 ? " " : "", field->name,
                             field->form == BRIM_FORM_TEXT    ? "text"
                             : field->form == BRIM_FORM_BYTES ? "bytes"
                                                              : brim_dtype_name(field->view.dtype));
    }
    for (uint64_t sample = 0; sample < source->count; sample++) {
        const uint8_t *record;
        used = put(to, used, room, "\n", 1);
        if (fetch_one(table, sample, &record) != BRIM_OK) {
            used = put(to, used, room, "bad", 3);
            continue;
        }
        for (uint32_t i = 0; i < source->field_count; i++) {
            used = i > 0 ? put(to, used, room, "|", 1) : used;
            used = put_field(to, used, room, &source->field[i], record);
        }
    }
    to[used] = '\0';
}

static void expect_rows(const char *options, const char *content, const char *rows) {
    struct table table;
    char told[4096];
    if (open_bytes(&table, options, content, strlen(content)) != BRIM_OK) {
        fail_msg("%s: %s", content, brim_detail());
    }
    tell(&table, told, sizeof told);
    if (strcmp(told, rows) != 0) {
        fail_msg("of\n%s\ncame\n%s\nnot\n%s", content, told, rows);
    }
    close_table(&table);
}

static void expect_refused_bytes(const char *options, const void *bytes, size_t count,
                                 brim_status status, const char *part) {
    struct table table;
    const size_t descriptors = open_descriptors();
    assert_int_equal(open_bytes(&table, options, bytes, count), status);
    assert_detail_has(part);
    assert_null(table.opened.source.ops);
    close_table(&table);
    assert_int_equal(open_descriptors(), descriptors);
}

static void expect_refused(const char *options, const char *content, brim_status status,
                           const char *part) {
    expect_refused_bytes(options, content, strlen(content), status, part);
}

static void expect_bad(const char *options, const char *content, uint64_t sample,
                       const char *part) {
    struct table table;
    const uint8_t *record;
    if (open_bytes(&table, options, content, strlen(content)) != BRIM_OK) {
        fail_msg("%s: %s", content, brim_detail());
    }
    assert_int_equal(fetch_one(&table, sample, &record), BRIM_STATUS_CORRUPT);
    assert_detail_has(part);
    close_table(&table);
}

/* ------------------------------------------------------------------- cases */

static void types_are_guessed(void **state) {
    (void)state;
    static const struct {
        const char *options, *content, *rows;
    } cases[] = {
        { "", "a,b,c\n1,2.5,x\n-3,4,yz\n", "a:int64 b:float64 c:text\n1|2.5|x\n-3|4|yz" },
        { "missing=nan", "a,b\n1,2\n,3\n", "a:float64 b:int64\n1|2\nnan|3" },
        { "missing=zero", "a\n1.5\nNA\nnull\nN/A\n", "a:float64\n1.5\n0\n0\n0" },
        { "missing=nan", "a,b\n,\n,\n", "a:float64 b:float64\nnan|nan\nnan|nan" },
        { "", "a\nnan\ninf\n-Infinity\n", "a:float64\nnan\ninf\n-inf" },
        { "", "a,b\n 1 ,\t2.5 \n", "a:int64 b:float64\n1|2.5" },
        { "", "a\n\"1\"\n\"2\"\n", "a:int64\n1\n2" },
        { "", "a\n9223372036854775807\n", "a:int64\n9223372036854775807" },
        { "", "a\n9223372036854775808\n", "a:float64\n9.2233720368547758e+18" },
        { "", "a\n1\ntrue\n", "a:text\n1\ntrue" },
        { "", "a,b\n1,\n2,x\n", "a:int64 b:text\n1|\n2|x" },
        { "", "x,y\n1,2\n1\n3.5,4\n", "x:float64 y:int64\n1|2\nbad\n3.5|4" },
        { "", "a\n007\n+5\n", "a:int64\n7\n5" },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        expect_rows(cases[i].options, cases[i].content, cases[i].rows);
    }
}

static void headers(void **state) {
    (void)state;
    static const struct {
        const char *options, *content, *rows;
    } cases[] = {
        { "", "1,2\n3,4\n", "c0:int64 c1:int64\n1|2\n3|4" },
        { "header=yes", "1,2\n3,4\n", "1:int64 2:int64\n3|4" },
        { "header=no", "a,b\n3,4\n", "c0:text c1:text\na|b\n3|4" },
        { "", ",a\n0,5\n1,6\n", "c0:int64 a:int64\n0|5\n1|6" },
        { "", "\"a\"\"b\",\"c,d\"\n1,2\n", "a_b:int64 c_d:int64\n1|2" },
        { "",
          "sepal length (cm),gr\xc3\xb6\xc3\x9f"
          "e\n1,2\n",
          "sepal_length_cm:int64 gr_e:int64\n1|2" },
        { "", "a , b\n1,2\n", "a:int64 b:int64\n1|2" },
        { "",
          "\xef\xbb\xbf"
          "a,b\n1,2\n",
          "a:int64 b:int64\n1|2" },
        { "",
          "\xef\xbb\xbf"
          "1,2\n",
          "c0:int64 c1:int64\n1|2" },
        { "", "a,b\n1,2", "a:int64 b:int64\n1|2" },
        { "", "a,b\r\n1,2\r\n3,4\r\n", "a:int64 b:int64\n1|2\n3|4" },
        { "", "\n\na,b\n\n1,2\n\r\n3,4\n\n", "a:int64 b:int64\n1|2\n3|4" },
        { "delimiter=;", "a;b\n1,5;2\n", "a:text b:int64\n1,5|2" },
        { "delimiter=tab", "a\tb\n1\t2\n", "a:int64 b:int64\n1|2" },
        { "delimiter=\"\\t\"", "a\tb\n1\t2\n", "a:int64 b:int64\n1|2" },
        { "delimiter=\"|\"", "a|b\n1|2\n", "a:int64 b:int64\n1|2" },
        { "delimiter=\" \"", "a b\n1 2.5\n", "a:int64 b:float64\n1|2.5" },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        expect_rows(cases[i].options, cases[i].content, cases[i].rows);
    }
}

static void columns_and_types_are_chosen(void **state) {
    (void)state;
    static const char content[] = "a,b,c,d\n1,2,x,4\n5,6,\"y,z\",8\n";
    static const struct {
        const char *options, *rows;
    } cases[] = {
        { "columns=d,a", "d:int64 a:int64\n4|1\n8|5" },
        { "columns=c", "c:text\nx\ny,z" },
        { "columns=d types=float32", "d:float32\n4\n8" },
        { "types=int8,uint64,bytes,float64", "a:int8 b:uint64 c:bytes d:float64\n1|2|x|4\n"
                                             "5|6|y,z|8" },
        { "types=b:text,d:u16", "a:int64 b:text c:text d:uint16\n1|2|x|4\n5|6|y,z|8" },
        { "types=text", "a:text b:text c:text d:text\n1|2|x|4\n5|6|y,z|8" },
        { "columns=a,b,d pack=yes", "x:float32\n1 2 4\n5 6 8" },
        { "columns=d,b pack=yes name=v types=int16", "v:int16\n4 2\n8 6" },
        { "columns=d,b pack=yes types=d:float64,b:float64", "x:float64\n4 2\n8 6" },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        expect_rows(cases[i].options, content, cases[i].rows);
    }
    expect_rows("types=bool", "a\ntrue\nFALSE\n1\n0\n\"True\"\n", "a:bool\n1\n0\n1\n0\n1");
    expect_rows("types=uint64", "a\n18446744073709551615\n", "a:uint64\n18446744073709551615");
    expect_rows("types=a:float64", "a\n0.1\n1e400\n-1e-400\n",
                "a:float64\n0.10000000000000001\ninf\n-0");
    expect_rows("types=\"a:b:text\"", "a:b\n1\n", "a_b:text\n1");
    expect_rows("columns=\"sepal length\"", "sepal length,b\n1,2\n", "sepal_length:int64\n1");
    expect_rows("columns=c1 header=no", "5,6\n", "c1:int64\n6");
}

static void quoting(void **state) {
    (void)state;
    static const struct {
        const char *content, *rows;
    } cases[] = {
        { "a,b\n\"x\",\"\"\n", "x|" },
        { "a,b\n\"x\"\"y\",\"\"\"\"\n", "x\"y|\"" },
        { "a,b\n\"x,y\",z\n", "x,y|z" },
        { "a,b\n\"x\ny\",z\n", "x\ny|z" },
        { "a,b\n\"x\r\ny\",z\r\n", "x\r\ny|z" },
        { "a,b\n\"\n\n\",\"\n\"\n", "\n\n|\n" },
        { "a,b\n\"x\"y,z\n", "xy|z" },
        { "a,b\n\"x\"\"\"y,z\n", "x\"y|z" },
        { "a,b\n\"x\" \"y\",z\n", "x \"y\"|z" },
        { "a,b\nx\"y\"z,\"\"\n", "x\"y\"z|" },
        { "a,b\nx\"\"y,z\n", "x\"\"y|z" },
        { "a,b\n \"x\",z\n", " \"x\"|z" },
        { "a,b\n x , z \n", " x | z " },
        { "a,b\n,\"x\"\n", "|x" },
        { "a,b\n\"\",\n", "|" },
        { "a,b\n\"\"\"\"\"\",\"\"\"x\"\"\"\n", "\"\"|\"x\"" },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        char rows[256];
        snprintf(rows, sizeof rows, "a:text b:text\n%s", cases[i].rows);
        expect_rows("types=text", cases[i].content, rows);
        /* a column that is not read is passed over as well as one that is */
        snprintf(rows, sizeof rows, "b:text\n%s", strrchr(cases[i].rows, '|') + 1);
        expect_rows("columns=b types=text", cases[i].content, rows);
    }
}

/* A quote that does not begin a field is a character like others: the line ends
 * where it ends. */
static void a_quote_inside_a_field_is_literal(void **state) {
    (void)state;
    expect_rows("", "a,b\n5\" pipe,1\n3\" pipe,2\n", "a:text b:int64\n5\" pipe|1\n3\" pipe|2");
    expect_rows("", "a,b\nx\"y,1\n\"p\nq\",2\n", "a:text b:int64\nx\"y|1\np\nq|2");
    expect_rows("", "a,b\n\"p\"\"q\"r\"s,1\nt,2\n", "a:text b:int64\np\"qr\"s|1\nt|2");
}

static void several_files(void **state) {
    (void)state;
    struct table table;
    char text[2048], told[1024];
    const struct path one = scratch_path("one.csv"), two = scratch_path("two.csv");
    write_file(one.text, "a,b\n1,x\n2,y\n", 12);
    write_file(two.text,
               "\xef\xbb\xbf"
               "a,b\r\n3,z\r\n",
               13);
    snprintf(text, sizeof text, "csv %s %s index=beside", one.text, two.text);
    assert_int_equal(open_text(&table, text), BRIM_OK);
    tell(&table, told, sizeof told);
    assert_string_equal(told, "a:int64 b:text\n1|x\n2|y\n3|z");
    close_table(&table);
    static const char *const others[] = { "b,a\n1,2\n",  "a\n1\n", "a,b,c\n1,2,3\n",
                                          "a,bc\n1,2\n", "",       "1,2\n" };
    for (size_t i = 0; i < BRIM__COUNT(others); i++) {
        write_file(two.text, others[i], strlen(others[i]));
        assert_int_equal(open_text(&table, text), BRIM_STATUS_INVALID);
        assert_detail_has("two.csv begins with");
        assert_detail_has("with the header \"a,b\"");
        close_table(&table);
    }
}

/* --------------------------------------------------------------- refusals */

static void bad_samples_say_what_is_wrong(void **state) {
    (void)state;
    static const struct {
        const char *options, *content;
        uint64_t sample;
        const char *part;
    } cases[] = {
        { "", "a,b\n1,2\n3\n", 1, "has 1 fields, but the header has 2" },
        { "", "a,b\n1,2\n3,4,5,\"6,7\"\n", 1, "has 4 fields, but the header has 2" },
        { "", "1,2\n3,4,5\n", 1, "has 3 fields, but the first record has 2" },
        { "types=int64", "a\n1\nx y\n", 1, "column 'a': \"x y\" is not of type int64" },
        { "types=int64", "a\n1.5\n", 0, "\"1.5\" is not of type int64" },
        { "types=int8", "a\n128\n", 0, "\"128\" is not of type int8" },
        { "types=uint8", "a\n-1\n", 0, "\"-1\" is not of type uint8" },
        { "types=bool", "a\n2\n", 0, "\"2\" is not of type bool" },
        { "types=float64", "a\n1e\n", 0, "\"1e\" is not of type float64" },
        { "types=float64", "a\n0x10\n", 0, "\"0x10\" is not of type float64" },
        { "types=float64", "a\n1 2\n", 0, "\"1 2\" is not of type float64" },
        { "types=float64", "a\n\"1\"2x\n", 0, "\"12x\" is not of type float64" },
        { "", "a,b\n1,\n", 0,
          "column 'b': the value is missing: give missing=nan or missing=zero" },
        { "types=int64 missing=nan", "a\nNA\n", 0, "type int64 has no NaN" },
        { "", "a,b\n1,\"x\n", 0, "column 'b': its quote is never closed" },
        { "columns=a", "a,b\n1,\"x\n", 0, "column 'b': its quote is never closed" },
        { "max_text=3", "a,b\n1,abcd\n", 0, "a text of 4 bytes, but max_text allows 3" },
        { "max_bytes=8", "a,b\n1,abcdefgh\n", 0, "max_bytes is 8" },
        { "types=text", "a\nx\xffy\n", 0, "\"x?y\" is not UTF-8 text" },
        { "header=no types=int64", "1,2\n3,\n", 1, "column 'c1'" },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        expect_bad(cases[i].options, cases[i].content, cases[i].sample, cases[i].part);
    }
}

static void what_was_guessed_is_said(void **state) {
    (void)state;
    char content[1024] = "a\n";
    for (int i = 0; i < BRIM__CSV_GUESS; i++) {
        strcat(content, "1\n");
    }
    strcat(content, "2.5\n");
    expect_bad("", content, BRIM__CSV_GUESS, "is not of type int64, the type of the first records");
    content[2] = '.';
    strcpy(content + 3, "5\n2.5\n");
    expect_rows("", content, "a:float64\n0.5\n2.5");
}

static void files_that_are_refused(void **state) {
    (void)state;
    expect_refused("", "", BRIM_STATUS_CORRUPT, "is empty");
    expect_refused("", "\n\n\r\n", BRIM_STATUS_CORRUPT, "is empty");
    expect_refused("", "\xef\xbb\xbf", BRIM_STATUS_CORRUPT, "is empty");
    expect_refused("", "a,b\n", BRIM_STATUS_CORRUPT, "has a header but no records");
    expect_refused("types=text", "a,b", BRIM_STATUS_CORRUPT, "has a header but no records");
    expect_refused_bytes("", "\x1f\x8b\b\0\n", 5, BRIM_STATUS_CORRUPT, "compressed with gzip");
    expect_refused("", "a;b\n1;2\n", BRIM_STATUS_INVALID, "give delimiter=;");
    expect_refused("", "a\tb\n1\t2\n", BRIM_STATUS_INVALID, "give delimiter=tab");
    expect_refused("", "a,\"b\n", BRIM_STATUS_CORRUPT, "a quote is never closed");
    expect_refused("", "a,b,a\n1,2,3\n", BRIM_STATUS_INVALID,
                   "columns 1 and 3 would both be called 'a'");
    expect_refused("", "a b,a-b,a%b\n1,2,3\n", BRIM_STATUS_INVALID, "columns 1 and 3");
    expect_refused("", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q\n", BRIM_STATUS_INVALID,
                   "at most 16 fields");
    expect_refused_bytes("",
                         "\xff\xfe"
                         "a\0,\0",
                         6, BRIM_STATUS_CORRUPT, "UTF-16");
    expect_refused("pack=yes", "a,b\n1,x\n", BRIM_STATUS_INVALID, "column 'b' holds text");
    expect_rows("", "a;b\nx\n", "a_b:text\nx");
    expect_rows("types=text", "a;b\nx;y\n", "a_b:text\nx;y");
    expect_rows("columns=b", "a,b,a\n1,2,3\n", "b:int64\n2");
    expect_rows("pack=yes", "a,b,a\n1,2,3\n", "x:float32\n1 2 3");
}

static void arguments_that_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *options, *part;
    } cases[] = {
        { "columns=lenght", "has no column 'lenght'; did you mean 'length'? (it has length, b" },
        { "columns=zzzzzz", "has no column 'zzzzzz' (it has length" },
        { "columns=c0", "has no column 'c0'" },
        { "columns=b,b", "names 'b' twice" },
        { "columns=b,b,b,b,b", "names 5 columns" },
        { "columns=dup", "columns 3 and 4" },
        { "columns=length,b types=int64,int64,text", "has 3 types for 2 columns" },
        { "columns=b types=b:int64,float64", "mixes types" },
        { "columns=b types=length:int64", "column 'length' is not among columns=" },
        { "columns=b types=b:int64,b:int64", "column 'b' is given two types" },
        { "columns=b types=nosuch:int64", "has no column 'nosuch'" },
        { "columns=b types=strange", "'strange' is not a type (it takes bool, int8" },
        { "columns=b types=boolean", "float64, text, bytes)" },
        { "columns=b types=int65", "did you mean 'int64'?" },
        { "columns=b types=complex64", "complex64" },
        { "columns=b types=float16", "cast" },
        { "columns=b pack=yes types=text", "column 'b' holds text" },
        { "columns=b,length pack=yes types=b:int64,length:float32", "one vector of one type" },
        { "columns=b pack=yes name=\"a b\"", "name" },
        { "delimiter=ab", "delimiter=" },
        { "delimiter=\"\"", "delimiter=" },
        { "delimiter=1", "delimiter=" },
        { "delimiter=.", "delimiter=" },
        { "delimiter='\"'", "delimiter=" },
    };
    for (size_t i = 0; i < BRIM__COUNT(cases); i++) {
        expect_refused(cases[i].options, "length,b,dup,dup\n1,2,3,4\n", BRIM_STATUS_INVALID,
                       cases[i].part);
    }
}

/* ----------------------------------------------------------------- hostile */

static void many_columns(void **state) {
    (void)state;
    const size_t most = BRIM__CSV_COLUMNS;
    const size_t bytes = 2 * (most + 1);
    char *content = malloc(2 * bytes);
    assert_non_null(content);
    for (size_t i = 0; i < 2 * (most + 1); i++) {
        content[i] = i % 2 == 0 ? (char)('0' + i / 2 % 10) : ',';
    }
    content[2 * most - 1] = '\n';
    memcpy(content + 2 * most, content, 2 * most);
    struct table table;
    const uint8_t *record;
    assert_int_equal(open_bytes(&table, "pack=yes header=no", content, 4 * most), BRIM_OK);
    assert_int_equal(table.opened.source.count, 2);
    assert_int_equal(table.opened.source.field[0].view.shape.dim[0], most);
    for (uint64_t sample = 0; sample < 2; sample++) {
        assert_int_equal(fetch_one(&table, sample, &record), BRIM_OK);
        for (size_t i = 0; i < most; i++) {
            float value;
            memcpy(&value, record + i * sizeof value, sizeof value);
            assert_true(value == (float)(i % 10));
        }
    }
    close_table(&table);
    content[2 * most - 1] = ',';
    content[2 * most] = '1';
    content[2 * most + 1] = '\n';
    expect_refused_bytes("pack=yes", content, 2 * most + 2, BRIM_STATUS_INVALID,
                         "more than 65536 fields");
    free(content);
}

static void long_numbers_and_texts(void **state) {
    (void)state;
    const size_t digits = 1000000;
    char *content = malloc(digits + 32);
    assert_non_null(content);
    memcpy(content, "a\n", 2);
    memset(content + 2, '1', digits);
    memcpy(content + 2 + digits, "\n", 2);
    struct table table;
    const uint8_t *record;
    assert_int_equal(open_bytes(&table, "types=float64", content, digits + 3), BRIM_OK);
    assert_int_equal(fetch_one(&table, 0, &record), BRIM_OK);
    double value;
    memcpy(&value, record, sizeof value);
    assert_true(value == __builtin_inf());
    close_table(&table);
    snprintf(content + 2 + digits, 16, "e-%zu\n", digits);
    assert_int_equal(open_bytes(&table, "types=float64", content, strlen(content)), BRIM_OK);
    assert_int_equal(fetch_one(&table, 0, &record), BRIM_OK);
    memcpy(&value, record, sizeof value);
    assert_true(value == 1.0 / 9);
    close_table(&table);
    assert_int_equal(open_bytes(&table, "types=int64", content, digits + 3), BRIM_OK);
    assert_int_equal(fetch_one(&table, 0, &record), BRIM_STATUS_CORRUPT);
    assert_detail_has("...");
    close_table(&table);
    assert_int_equal(open_bytes(&table, "types=text max_bytes=64KiB", content, digits + 3),
                     BRIM_OK);
    assert_int_equal(fetch_one(&table, 0, &record), BRIM_STATUS_CORRUPT);
    assert_detail_has("max_bytes is 65536");
    assert_int_equal(table.opened.source.field[0].view.shape.dim[0], 65536);
    close_table(&table);
    free(content);
}

static void zeros_are_no_text(void **state) {
    (void)state;
    struct table table;
    const uint8_t *record;
    static const char content[] = "a,b\n1,x\0y\n2\0,z\n3,w\n";
    assert_int_equal(open_bytes(&table, "types=int64,text", content, sizeof content - 1), BRIM_OK);
    assert_int_equal(fetch_one(&table, 0, &record), BRIM_STATUS_CORRUPT);
    assert_detail_has("it holds a NUL");
    assert_int_equal(fetch_one(&table, 1, &record), BRIM_STATUS_CORRUPT);
    assert_detail_has("\"2?\" is not of type int64");
    assert_int_equal(fetch_one(&table, 2, &record), BRIM_OK);
    close_table(&table);
    assert_int_equal(open_bytes(&table, "columns=b types=bytes", content, sizeof content - 1),
                     BRIM_OK);
    assert_int_equal(fetch_one(&table, 0, &record), BRIM_OK);
    struct brim__span span;
    memcpy(&span, record, sizeof span);
    assert_int_equal(span.count, 3);
    assert_memory_equal(span.data, "x\0y", 3);
    close_table(&table);
}

/* ------------------------------------------------------------------ models */

/* From character to character, as pandas' and Python's readers do. Returns the
 * number of fields, 0 if a quote is never closed; texts end with a zero. */
static size_t model_split(const char *at, size_t length, char texts[][40]) {
    enum { BEGIN, PLAIN, QUOTED, AFTER_QUOTE } where = BEGIN;
    size_t count = 0, used = 0;
    for (size_t i = 0; i <= length; i++) {
        const char c = i < length ? at[i] : ',';
        const bool ends = i == length || c == ',';
        if (where == QUOTED && i == length) {
            return 0;
        }
        if (where == QUOTED ? false : ends) {
            texts[count++][used] = '\0';
            used = 0;
            where = BEGIN;
        } else if (where == BEGIN && c == '"') {
            where = QUOTED;
        } else if (where == QUOTED && c == '"') {
            where = AFTER_QUOTE;
        } else if (where == AFTER_QUOTE && c == '"') {
            texts[count][used++] = '"';
            where = QUOTED;
        } else {
            texts[count][used++] = c;
            where = where == QUOTED ? QUOTED : PLAIN;
        }
    }
    return count;
}

static void fields_are_split_as_the_model_does(void **state) {
    (void)state;
    static const char alphabet[] = "\"\"\",,ab \n";
    uint64_t random = 11;
    for (int round = 0; round < 200000; round++) {
        const size_t length = next_random(&random) % 24;
        char *bytes = malloc(length + 1), texts[32][40];
        assert_non_null(bytes);
        for (size_t i = 0; i < length; i++) {
            bytes[i] = alphabet[next_random(&random) % (sizeof alphabet - 1)];
        }
        bytes[length] = ',';
        const size_t wanted = model_split(bytes, length, texts);
        size_t skipped = 0, count = 0;
        for (const char *at = bytes; at != NULL && at <= bytes + length; skipped++) {
            at = brim__csv_skip(',', at, bytes + length);
            skipped = at == NULL ? SIZE_MAX : skipped;
        }
        assert_int_equal(skipped, wanted);
        for (char *at = bytes; at <= bytes + length; count++) {
            char *text;
            size_t text_length;
            at = brim__csv_split(',', at, bytes + length, &text, &text_length);
            if (at == NULL) {
                assert_int_equal(wanted, 0);
                break;
            }
            if (wanted > 0) {
                assert_int_equal(text_length, strlen(texts[count]));
                assert_memory_equal(text, texts[count], text_length);
            }
        }
        assert_true(wanted == 0 || count == wanted);
        free(bytes);
    }
}

/* Which newlines end records, from character to character; the bytes may come in
 * pieces of any length. */
static void records_end_as_the_model_says(void **state) {
    (void)state;
    static const char alphabet[] = "\"\"\",,,\n\nabcdefghijk";
    const struct brim__line_format format = { .quotes = true, .delimiter = ',' };
    uint64_t random = 13, ends = 0, kept = 0;
    for (int round = 0; round < 40000; round++) {
        uint8_t bytes[300];
        const size_t length = 1 + next_random(&random) % sizeof bytes;
        const size_t letters = next_random(&random) % 2 == 0 ? 9 : sizeof alphabet - 1;
        for (size_t i = 0; i < length; i++) {
            bytes[i] = (uint8_t)alphabet[next_random(&random) % letters];
        }
        enum { BEGIN, PLAIN, QUOTED, AFTER_QUOTE } where = BEGIN;
        struct brim__line_state walk = { 0 };
        const uint8_t *at = bytes;
        for (size_t i = 0; i < length; i++) {
            const uint8_t c = bytes[i];
            if (where == QUOTED) {
                where = c == '"' ? AFTER_QUOTE : QUOTED;
            } else if (c == '"' && where != PLAIN) {
                where = QUOTED;
            } else {
                where = c == ',' || c == '\n' ? BEGIN : PLAIN;
            }
            const bool wanted = c == '\n' && where == BEGIN;
            kept += c == '\n' && !wanted;
            ends += wanted;
            /* the piece goes on to here, or further */
            if (wanted || next_random(&random) % 50 == 0) {
                const uint8_t *end = bytes + i + 1;
                const uint8_t *found = brim__line_end(at, end, &format, &walk);
                assert_ptr_equal(found, wanted ? end - 1 : NULL);
                at = end;
            }
        }
        assert_null(brim__line_end(at, bytes + length, &format, &walk));
    }
    assert_true(ends > 100000 && kept > 100000);
}

/* Whatever the bytes, nothing outside them is touched, and what comes lies in them. */
static void records_of_random_bytes(void **state) {
    (void)state;
    static const char alphabet[] = "\"\",,,0123456789.eE+-naif \t\r\n\0\xc3\xa9\xff";
    struct brim__csv_column column[6] = {
        { .kind = BRIM_DTYPE_F64, .offset = 0 },   { .kind = BRIM__CSV_TEXT, .offset = 8 },
        { .kind = BRIM_DTYPE_I64, .offset = 24 },  { .kind = BRIM__CSV_SKIP },
        { .kind = BRIM__CSV_BYTES, .offset = 32 }, { .kind = BRIM_DTYPE_U8, .offset = 48 },
    };
    struct brim__csv csv = { .delimiter = ',', .count = 6, .column = column, .most_text = 20 };
    uint64_t random = 12, good = 0;
    for (int round = 0; round < 300000; round++) {
        const size_t length = next_random(&random) % 40;
        uint8_t *bytes = malloc(length + 1), record[49], work;
        assert_non_null(bytes);
        for (size_t i = 0; i < length; i++) {
            bytes[i] = (uint8_t)alphabet[next_random(&random) % sizeof alphabet];
        }
        csv.count = 1 + (uint32_t)(next_random(&random) % 6);
        csv.missing = (enum brim__csv_missing)(next_random(&random) % 3);
        if (brim__csv_parse(NULL, &csv, bytes, length, record, &work) == BRIM_OK) {
            good++;
            for (uint32_t i = 0; i < csv.count; i++) {
                if (column[i].kind == BRIM__CSV_TEXT || column[i].kind == BRIM__CSV_BYTES) {
                    struct brim__span span;
                    memcpy(&span, record + column[i].offset, sizeof span);
                    assert_true(span.data >= bytes && span.count <= 20 &&
                                span.data + span.count <= bytes + length);
                }
            }
        }
        free(bytes);
    }
    assert_true(good > 1000);
}

static void neighbours_come_together(void **state) {
    (void)state;
    const size_t rows = 5000;
    char *content = malloc(rows * 48);
    assert_non_null(content);
    size_t used = (size_t)sprintf(content, "i,t,v\n");
    for (size_t i = 0; i < rows; i++) {
        used += (size_t)sprintf(content + used, "%zu,\"%zu\"\"\n,\",%zu.5\r\n", i, i, i);
    }
    struct table table;
    assert_int_equal(open_bytes(&table, "", content, used), BRIM_OK);
    const struct brim__source *source = &table.opened.source;
    assert_int_equal(source->count, rows);
    assert_int_equal(posix_memalign((void **)&table.buffer, 64, brim__source_buffer(source, 50)),
                     0);
    for (uint64_t sample = 0, got = 0; sample < rows; sample += got) {
        const uint8_t *records;
        assert_int_equal(fetch_run(source, sample, 50, table.buffer, &records, &got), BRIM_OK);
        assert_true(got >= 1 && got <= 50);
        for (uint64_t i = 0; i < got; i++) {
            char told[128], wanted[128];
            size_t end = 0;
            for (uint32_t f = 0; f < 3; f++) {
                end = put_field(told, end, sizeof told, &source->field[f],
                                records + i * source->pitch);
                told[end++] = '|';
            }
            told[end] = '\0';
            snprintf(wanted, sizeof wanted, "%" PRIu64 "|%" PRIu64 "\"\n,|%" PRIu64 ".5|",
                     sample + i, sample + i, sample + i);
            assert_string_equal(told, wanted);
        }
    }
    close_table(&table);
    free(content);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_are_guessed),
        cmocka_unit_test(headers),
        cmocka_unit_test(columns_and_types_are_chosen),
        cmocka_unit_test(quoting),
        cmocka_unit_test(a_quote_inside_a_field_is_literal),
        cmocka_unit_test(several_files),
        cmocka_unit_test(bad_samples_say_what_is_wrong),
        cmocka_unit_test(what_was_guessed_is_said),
        cmocka_unit_test(files_that_are_refused),
        cmocka_unit_test(arguments_that_are_refused),
        cmocka_unit_test(many_columns),
        cmocka_unit_test(long_numbers_and_texts),
        cmocka_unit_test(zeros_are_no_text),
        cmocka_unit_test(fields_are_split_as_the_model_does),
        cmocka_unit_test(records_end_as_the_model_says),
        cmocka_unit_test(records_of_random_bytes),
        cmocka_unit_test(neighbours_come_together),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
