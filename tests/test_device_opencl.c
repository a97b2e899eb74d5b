/*
 * test_device_opencl.c: OpenCL's devices, on whatever driver is installed: values
 * against the host's, order across queues, contexts, refusals, every point at which the
 * driver may fail, and machines without a driver. Without a device the tests skip.
 *
 * What a consumer would do is done by OpenCL calls of the test's own (struct consumer).
 * `test_device_opencl --count` only counts devices and prints what came of it: how the
 * test looks at itself under another environment.
 */
#include "device_util.h"

#include "base/fault.h"
#include "base/platform.h"
#include "device/opencl_kernels.h"
#include "device/opencl_library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEVICE_FAULTS (1u << BRIM__FAULT_DEVICE)
#define THREADS       4

#define CL_CONTEXT_REFERENCE_COUNT    0x1080
#define CL_DEVICE_PARTITION_BY_COUNTS 0x1087

static bool is_there; /* a device */

#define NEEDS_A_DEVICE                                              \
    (void)state;                                                    \
    if (!is_there) {                                                \
        print_message("skipped: there is no OpenCL device here\n"); \
        skip();                                                     \
    }

/* --------------------------------------------------------------- a consumer */

/* A program that has an OpenCL context of its own. */
struct consumer {
    const struct brim__opencl *opencl;
    cl_context context;
    cl_command_queue queue;
    cl_event (*clCreateUserEvent)(cl_context, cl_int *);
    cl_int (*clSetUserEventStatus)(cl_event, cl_int);
    cl_int (*clGetContextInfo)(cl_context, cl_uint, size_t, void *, size_t *);
    cl_int (*clCreateSubDevices)(cl_device_id, const intptr_t *, cl_uint, cl_device_id *,
                                 cl_uint *);
    cl_int (*clReleaseDevice)(cl_device_id);
};

static void find_call(void *library, const char *name, void *call) {
    void *const symbol = dlsym(library, name);
    assert_non_null(symbol);
    memcpy(call, &symbol, sizeof symbol);
}

static void consumer_open(struct consumer *consumer) {
    must_ok(brim__opencl_load(&consumer->opencl));
    void *const library = dlopen("libOpenCL.so.1", RTLD_NOW);
    assert_non_null(library);
    find_call(library, "clCreateUserEvent", &consumer->clCreateUserEvent);
    find_call(library, "clSetUserEventStatus", &consumer->clSetUserEventStatus);
    find_call(library, "clGetContextInfo", &consumer->clGetContextInfo);
    find_call(library, "clCreateSubDevices", &consumer->clCreateSubDevices);
    find_call(library, "clReleaseDevice", &consumer->clReleaseDevice);
    cl_int error;
    const cl_device_id device = consumer->opencl->device[0].id;
    consumer->context = consumer->opencl->clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    consumer->queue = consumer->opencl->clCreateCommandQueue(consumer->context, device, 0, &error);
    assert_int_equal(error, CL_SUCCESS);
}

static void consumer_close(struct consumer *consumer) {
    assert_int_equal(consumer->opencl->clFinish(consumer->queue), CL_SUCCESS);
    assert_int_equal(consumer->opencl->clReleaseCommandQueue(consumer->queue), CL_SUCCESS);
    assert_int_equal(consumer->opencl->clReleaseContext(consumer->context), CL_SUCCESS);
}

static cl_uint users_of(const struct consumer *consumer, cl_context context) {
    cl_uint count = 0;
    assert_int_equal(
        consumer->clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof count, &count, NULL),
        CL_SUCCESS);
    return count;
}

/* Drivers let go of what a command used after they have told that it is done. */
static void wait_for_users(const struct consumer *consumer, cl_context context, cl_uint wanted) {
    const struct timespec moment = { .tv_nsec = 1000000 };
    for (int i = 0; i < 60000 && users_of(consumer, context) != wanted; i++) {
        nanosleep(&moment, NULL);
    }
    assert_int_equal(users_of(consumer, context), wanted);
}

/* An event that is done when the test says so. */
static struct brim__event gate_new(const struct consumer *consumer, cl_context context) {
    cl_int error;
    const struct brim__event gate = { consumer->clCreateUserEvent(context, &error) };
    assert_int_equal(error, CL_SUCCESS);
    return gate;
}

static void gate_set(const struct consumer *consumer, const struct brim__event *gate,
                     cl_int status) {
    assert_int_equal(consumer->clSetUserEventStatus(gate->handle, status), CL_SUCCESS);
}

/* ----------------------------------------------------------- finding OpenCL */

/* Devices that OpenCL has, counted without brim. */
static uint32_t count_by_hand(void) {
    void *const library = dlopen("libOpenCL.so.1", RTLD_NOW);
    if (library == NULL) {
        return 0;
    }
    struct brim__opencl opencl = { 0 };
    find_call(library, "clGetPlatformIDs", &opencl.clGetPlatformIDs);
    find_call(library, "clGetDeviceIDs", &opencl.clGetDeviceIDs);
    cl_platform_id platforms[32];
    cl_uint count = 0;
    if (opencl.clGetPlatformIDs(BRIM__COUNT(platforms), platforms, &count)) {
        return 0;
    }
    uint32_t sum = 0;
    for (cl_uint i = 0; i < count && i < BRIM__COUNT(platforms); i++) {
        cl_uint devices = 0;
        if (opencl.clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 0, NULL, &devices) ==
            CL_SUCCESS) {
            sum += devices;
        }
    }
    return sum;
}

/* Has to be the first test: what is found is found once. */
static void what_is_found_is_found_once(void **state) {
    (void)state;
    uint32_t count;
    if (brim_device_count(BRIM_DEVICE_OPENCL, &count) == BRIM_STATUS_UNSUPPORTED) {
        assert_detail_has("install ocl-icd-libopencl1 and a driver such as pocl-opencl-icd");
        print_message("there is no OpenCL here: %s\n", brim_detail());
        assert_int_equal(count_by_hand(), 0);
        return;
    }
    must_ok(brim_device_count(BRIM_DEVICE_OPENCL, &count));
    assert_int_equal(count, brim__min(count_by_hand(), BRIM_MAX_DEVICES));
    is_there = count > 0;
    /* nothing is looked for any more */
    brim__fault_arm(DEVICE_FAULTS, 1, true);
    must_ok(brim_device_count(BRIM_DEVICE_OPENCL, &count));
    assert_int_equal(brim__fault_passed(BRIM__FAULT_DEVICE), 0);
    brim__fault_arm(0, 0, false);
}

static void print_count(void) {
    uint32_t count = 0;
    const brim_status status = brim_device_count(BRIM_DEVICE_OPENCL, &count);
    printf("%s %u %s\n", brim_status_name(status), count, status != BRIM_OK ? brim_detail() : "");
}

/* Every point of the search in turn, in a process that has not found anything yet. */
static void print_faults(void) {
    for (uint64_t nth = 1;; nth++) {
        brim__fault_arm(DEVICE_FAULTS, nth, true);
        uint32_t count = 77;
        const brim_status status = brim_device_count(BRIM_DEVICE_OPENCL, &count);
        const bool injected = brim__fault_injected() > 0;
        brim__fault_arm(0, 0, false);
        if (!injected || status == BRIM_OK) {
            break;
        }
        printf("%s %u %s\n", brim_status_name(status), count, brim_detail());
    }
    print_count();
}

/* What this program prints when it runs with one argument and one variable more. */
static void run_self(const char *argument, const char *variable, const char *value,
                     char text[TEXT_BYTES]) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (dup2(ends[1], STDOUT_FILENO) < 0 ||
            (variable != NULL && setenv(variable, value, 1) != 0)) {
            _exit(98);
        }
        close(ends[0]);
        execl("/proc/self/exe", "test_device_opencl", argument, (char *)NULL);
        _exit(99);
    }
    close(ends[1]);
    size_t length = 0;
    ssize_t got;
    while ((got = read(ends[0], text + length, TEXT_BYTES - 1 - length)) > 0) {
        length += (size_t)got;
    }
    text[length] = 0;
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail_msg("the child ended with status %d and printed: %s", status, text);
    }
}

static void assert_has(const char *text, const char *part) {
    if (strstr(text, part) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", part, text);
    }
}

static void every_point_of_the_search_fails_cleanly(void **state) {
    NEEDS_A_DEVICE
    char text[TEXT_BYTES];
    run_self("--faults", NULL, NULL, text);
    assert_has(text,
               "BRIM_STATUS_UNSUPPORTED 77 there is no OpenCL here: libOpenCL.so.1 was looked for");
    assert_has(text, "BRIM_STATUS_DRIVER 77 OpenCL: libOpenCL.so.1 could not list its drivers: "
                     "CL_OUT_OF_RESOURCES (-5)");
    assert_has(text, "could not list its devices: CL_OUT_OF_RESOURCES (-5)");
    assert_has(text, "\nBRIM_OK ");
}

/* A file that stands where the loader is looked for first. */
static void without_a_loader_the_text_says_what_to_install(void **state) {
    (void)state;
    char text[TEXT_BYTES];
    write_file("libOpenCL.so.1", "", 0);
    run_self("--count", "LD_LIBRARY_PATH", in_directory("").text, text);
    assert_has(text,
               "BRIM_STATUS_UNSUPPORTED 0 there is no OpenCL here: libOpenCL.so.1 was looked for");
    assert_has(text, "install ocl-icd-libopencl1 and a driver such as pocl-opencl-icd");
    assert_int_equal(unlink(in_directory("libOpenCL.so.1").text), 0);
}

static void a_loader_that_is_none_is_refused(void **state) {
    (void)state;
    void *const other = dlopen("libm.so.6", RTLD_NOW);
    assert_non_null(other);
    const struct link_map *map;
    assert_int_equal(dlinfo(other, RTLD_DI_LINKMAP, &map), 0);
    assert_int_equal(symlink(map->l_name, in_directory("libOpenCL.so.1").text), 0);
    char text[TEXT_BYTES];
    run_self("--count", "LD_LIBRARY_PATH", in_directory("").text, text);
    assert_has(text, "BRIM_STATUS_UNSUPPORTED 0 OpenCL: libOpenCL.so.1 has no clGetPlatformIDs");
    assert_int_equal(unlink(in_directory("libOpenCL.so.1").text), 0);
    dlclose(other);
}

static void without_a_driver_the_text_says_what_to_install(void **state) {
    NEEDS_A_DEVICE
    char text[TEXT_BYTES];
    run_self("--count", "OCL_ICD_VENDORS", in_directory("").text, text);
    assert_has(text, "BRIM_STATUS_UNSUPPORTED 0 OpenCL: libOpenCL.so.1 found no driver");
    assert_has(text, "install ocl-icd-libopencl1 and a driver such as pocl-opencl-icd");
}

static void devices_tell_about_themselves(void **state) {
    NEEDS_A_DEVICE
    uint32_t count;
    must_ok(brim_device_count(BRIM_DEVICE_OPENCL, &count));
    const struct brim__opencl *opencl;
    must_ok(brim__opencl_load(&opencl));
    bool cpus = false; /* behind all others */
    for (uint32_t i = 0; i < count; i++) {
        brim_device_info info = BRIM_DEVICE_INFO_INIT;
        must_ok(brim_device_read(BRIM_DEVICE_OPENCL, i, &info));
        assert_int_equal(info.kind, BRIM_DEVICE_OPENCL);
        assert_int_equal(info.index, i);
        assert_true(info.name[0] != 0 && info.name[0] != ' ');
        assert_true(info.driver[0] != 0);
        assert_true(info.total_bytes > 0 && info.largest_bytes > 0);
        assert_true(info.free_bytes == BRIM_UNKNOWN);
        assert_int_equal(info.converts, 1);
        cl_bitfield type = 0;
        assert_int_equal(
            opencl->clGetDeviceInfo(opencl->device[i].id, CL_DEVICE_TYPE, sizeof type, &type, NULL),
            CL_SUCCESS);
        const bool cpu = (type & CL_DEVICE_TYPE_CPU) != 0;
        assert_true(cpu || !cpus);
        cpus = cpus || cpu;
    }
    brim_device_info info = BRIM_DEVICE_INFO_INIT;
    assert_int_equal(brim_device_read(BRIM_DEVICE_OPENCL, count, &info), BRIM_STATUS_INVALID);
    assert_detail_has("there is no opencl:");
}

static void a_forked_child_is_refused(void **state) {
    NEEDS_A_DEVICE
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        uint32_t count;
        _exit(brim_device_count(BRIM_DEVICE_OPENCL, &count) == BRIM_STATUS_FORKED ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    uint32_t count;
    must_ok(brim_device_count(BRIM_DEVICE_OPENCL, &count));
}

static void errors_have_names(void **state) {
    (void)state;
    assert_string_equal(brim__opencl_error_name(-4), "CL_MEM_OBJECT_ALLOCATION_FAILURE");
    assert_string_equal(brim__opencl_error_name(-1001), "CL_PLATFORM_NOT_FOUND_KHR");
    assert_string_equal(brim__opencl_error_name(-9999), "an error of the driver's own");
    assert_int_equal(brim__opencl_fail(3, "a thing", -6), BRIM_STATUS_MEMORY);
    assert_detail_has("opencl:3: a thing failed: CL_OUT_OF_HOST_MEMORY (-6)");
    assert_int_equal(brim__opencl_fail(3, "a thing", -30), BRIM_STATUS_DRIVER);
}

/* ------------------------------------------------------------------- values */

static void bytes_go_there_and_back(void **state) {
    NEEDS_A_DEVICE
    struct place place;
    place_open(&place, BRIM_DEVICE_OPENCL);
    uint64_t random = 21;
    for (int i = 0; i < 50; i++) {
        const uint64_t bytes = 1 + random_to(&random, i % 8 == 0 ? 300000 : 5000);
        uint8_t *const data = some_bytes(bytes, next_random(&random));
        uint8_t *const wanted = some_bytes(bytes, next_random(&random));
        uint8_t *const given = malloc(bytes);
        assert_non_null(given);
        struct brim__device_memory a = put(&place, data, bytes);
        struct brim__device_memory b = put(&place, wanted, bytes);
        const uint64_t from = random_to(&random, bytes - 1);
        const uint64_t to = random_to(&random, bytes - 1);
        const uint64_t part = random_to(&random, brim__min(bytes - from, bytes - to));
        wait_for_all(&place.queue); /* which reads `wanted` until then */
        must_ok(brim__queue_copy(&place.queue, &b, to, &a, from, part));
        memcpy(wanted + to, data + from, part);
        get(&place, &b, given);
        assert_memory_equal(given, wanted, bytes);
        /* a part of it */
        must_ok(brim__queue_write(&place.queue, &a, from, wanted, bytes - from));
        must_ok(brim__queue_read(&place.queue, given, &a, from, bytes - from));
        wait_for_all(&place.queue);
        assert_memory_equal(given, wanted, bytes - from);
        brim__device_give(&place.device, &a);
        brim__device_give(&place.device, &b);
        free(data);
        free(wanted);
        free(given);
    }
    place_close(&place);
}

/* `count` random lookups and gathers are what the host makes of them. */
static void compare_with_host(struct place *place, uint64_t random, int count) {
    struct place host;
    place_open(&host, BRIM_DEVICE_HOST);
    for (int i = 0; i < count; i++) {
        const struct lookup_case lookup = random_lookup(&random);
        const struct gather_case gather = random_gather(&random);
        uint8_t *const wanted[] = { run_lookup(&host, &lookup), run_gather(&host, &gather) };
        uint8_t *const given[] = { run_lookup(place, &lookup), run_gather(place, &gather) };
        assert_memory_equal(given[0], wanted[0], lookup.destination_bytes);
        assert_memory_equal(given[1], wanted[1], gather.destination_bytes);
        for (int k = 0; k < 2; k++) {
            free(wanted[k]);
            free(given[k]);
        }
    }
    place_close(&host);
}

static void lookups_and_gathers_equal_the_hosts(void **state) {
    NEEDS_A_DEVICE
    struct place place;
    place_open(&place, BRIM_DEVICE_OPENCL);
    compare_with_host(&place, 22, 60);
    place_close(&place);
}

/* As on a device that is no CPU: groups of work items, one element for each. */
static void work_groups_give_the_same(void **state) {
    NEEDS_A_DEVICE
    struct consumer consumer;
    consumer_open(&consumer);
    struct place place;
    struct place host;
    place_open(&place, BRIM_DEVICE_OPENCL);
    place_open(&host, BRIM_DEVICE_HOST);
    struct brim__opencl_kernels kernels = { .opencl = consumer.opencl,
                                            .context = place.device.context,
                                            .device = place.device.handle };
    must_ok(brim__opencl_kernels_init(&kernels));
    uint64_t random = 23;
    for (int i = 0; i < 20; i++) {
        struct lookup_case test = random_lookup(&random);
        uint8_t *const wanted = run_lookup(&host, &test);
        uint8_t *const source = some_bytes(test.source_bytes, test.seed);
        uint8_t *const table = some_bytes(test.table_bytes, test.seed + 1);
        uint8_t *const given = some_bytes(test.destination_bytes, test.seed + 2);
        struct brim__device_memory memory[] = { put(&place, source, test.source_bytes),
                                                put(&place, table, test.table_bytes),
                                                put(&place, given, test.destination_bytes) };
        test.lookup.source = &memory[0];
        test.lookup.table = &memory[1];
        test.lookup.destination = &memory[2];
        must_ok(brim__opencl_lookup(&kernels, place.queue.handle, &test.lookup));
        get(&place, &memory[2], given);
        assert_memory_equal(given, wanted, test.destination_bytes);
        for (int k = 0; k < 3; k++) {
            brim__device_give(&place.device, &memory[k]);
        }
        free(wanted);
        free(source);
        free(table);
        free(given);
    }
    brim__opencl_kernels_fini(&kernels);
    place_close(&place);
    place_close(&host);
    consumer_close(&consumer);
}

/* ------------------------------------------------------------------ threads */

static void *work_alone(void *argument) {
    struct place place; /* opened and closed while others do so */
    place_open(&place, BRIM_DEVICE_OPENCL);
    compare_with_host(&place, (uint64_t)(uintptr_t)argument, 10);
    place_close(&place);
    return NULL;
}

/* One device, a queue for each thread, and the same kernels. */
static void *work_together(void *argument) {
    struct place place = { .device = *(struct brim__device *)argument };
    must_ok(brim__queue_new(&place.device, &place.queue));
    compare_with_host(&place, (uint64_t)(uintptr_t)&place, 10);
    brim__queue_free(&place.queue);
    return NULL;
}

static void run_threads(void *(*run)(void *), void *argument) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        void *const given = argument != NULL ? argument : (void *)(i + 1);
        assert_int_equal(pthread_create(&threads[i], NULL, run, given), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

static void threads_may_open_and_close_at_once(void **state) {
    NEEDS_A_DEVICE
    run_threads(work_alone, NULL);
}

static void threads_may_use_one_device_at_once(void **state) {
    NEEDS_A_DEVICE
    struct brim__device device;
    must_ok(brim__device_open(&device, BRIM_DEVICE_OPENCL, 0, NULL, NULL));
    run_threads(work_together, &device);
    brim__device_close(&device);
}

/* A driver's compiler does not run on the stack of a worker. */
static void a_workers_stack_suffices(void **state) {
    NEEDS_A_DEVICE
    struct brim__pages stack;
    must_ok(
        brim__pages_new(&stack, NULL, brim__thread_stack_bytes((size_t)256 << 10), false, true));
    brim__thread thread;
    must_ok(brim__thread_start(&thread, stack.memory, stack.bytes, "worker", work_alone,
                               (void *)(uintptr_t)77));
    brim__thread_join(thread);
    brim__pages_free(&stack);
}

/* -------------------------------------------------------- order and contexts */

static void a_queue_waits_for_the_events_of_another(void **state) {
    NEEDS_A_DEVICE
    struct consumer consumer;
    consumer_open(&consumer);
    struct place place;
    place_open(&place, BRIM_DEVICE_OPENCL);
    struct brim__queue second;
    must_ok(brim__queue_new(&place.device, &second));
    enum { BYTES = 100000 };
    uint8_t *const old = some_bytes(BYTES, 31);
    uint8_t *const new = some_bytes(BYTES, 32);
    uint8_t *const given = some_bytes(BYTES, 33);
    struct brim__device_memory a = put(&place, old, BYTES);
    struct brim__device_memory b = put(&place, old, BYTES);
    wait_for_all(&place.queue);

    struct brim__event gate = gate_new(&consumer, place.device.context);
    struct brim__event before;
    struct brim__event written;
    struct brim__event copied;
    must_ok(brim__queue_record(&place.queue, &before));
    must_ok(brim__queue_wait(&place.queue, &gate));
    must_ok(brim__queue_write(&place.queue, &a, 0, new, BYTES));
    must_ok(brim__queue_record(&place.queue, &written));
    must_ok(brim__queue_wait(&second, &written));
    must_ok(brim__queue_copy(&second, &b, 0, &a, 0, BYTES));
    must_ok(brim__queue_read(&second, given, &b, 0, BYTES));
    must_ok(brim__queue_record(&second, &copied));

    must_ok(brim__event_wait(&place.device, &before)); /* what came before does not wait */
    assert_int_equal(brim__event_poll(&place.device, &gate), BRIM_STATUS_TIMEOUT);
    assert_int_equal(brim__event_poll(&place.device, &written), BRIM_STATUS_TIMEOUT);
    assert_int_equal(brim__event_poll(&place.device, &copied), BRIM_STATUS_TIMEOUT);
    gate_set(&consumer, &gate, CL_COMPLETE);
    must_ok(brim__event_wait(&place.device, &copied));
    must_ok(brim__event_poll(&place.device, &copied));
    must_ok(brim__event_poll(&place.device, &written));
    assert_memory_equal(given, new, BYTES);

    brim__event_free(&place.device, &gate);
    brim__event_free(&place.device, &before);
    brim__event_free(&place.device, &written);
    brim__event_free(&place.device, &copied);
    brim__event_free(&place.device, &copied); /* harmless */
    brim__device_give(&place.device, &a);
    brim__device_give(&place.device, &b);
    brim__queue_free(&second);
    place_close(&place);
    consumer_close(&consumer);
    free(old);
    free(new);
    free(given);
}

static void work_that_failed_says_so(void **state) {
    NEEDS_A_DEVICE
    struct consumer consumer;
    consumer_open(&consumer);
    struct place place;
    place_open(&place, BRIM_DEVICE_OPENCL);
    struct brim__event gate = gate_new(&consumer, place.device.context);
    gate_set(&consumer, &gate, CL_OUT_OF_RESOURCES);
    assert_int_equal(brim__event_poll(&place.device, &gate), BRIM_STATUS_DRIVER);
    assert_detail_has("opencl:0: work on the device failed: CL_OUT_OF_RESOURCES (-5)");
    assert_int_equal(brim__event_wait(&place.device, &gate), BRIM_STATUS_DRIVER);
    assert_detail_has("opencl:0: work on the device failed: CL_OUT_OF_RESOURCES (-5)");
    brim__event_free(&place.device, &gate);
    place_close(&place);
    consumer_close(&consumer);
}

static void openers_share_a_context_that_goes_with_the_last(void **state) {
    NEEDS_A_DEVICE
    struct consumer consumer;
    consumer_open(&consumer);
    struct place a;
    struct place b;
    place_open(&a, BRIM_DEVICE_OPENCL);
    const cl_uint alone = users_of(&consumer, a.device.context);
    place_open(&b, BRIM_DEVICE_OPENCL);
    assert_ptr_equal(a.device.context, b.device.context);
    assert_true(users_of(&consumer, a.device.context) > alone);
    place_close(&a);
    wait_for_users(&consumer, b.device.context, alone);
    compare_with_host(&b, 41, 2); /* it still works */
    /* a reference of the test's own, to see brim's go */
    const cl_context context = b.device.context;
    assert_int_equal(consumer.opencl->clRetainContext(context), CL_SUCCESS);
    place_close(&b);
    wait_for_users(&consumer, context, 1);
    assert_int_equal(consumer.opencl->clReleaseContext(context), CL_SUCCESS);
    consumer_close(&consumer);
}

/* Built by the first who needs it, and there for who opens while another one is open. */
static void openers_share_a_program(void **state) {
    NEEDS_A_DEVICE
    struct place a;
    struct place b;
    place_open(&a, BRIM_DEVICE_OPENCL);
    must_ok(brim__device_prepare(&a.device));
    place_open(&b, BRIM_DEVICE_OPENCL);
    brim__fault_arm(DEVICE_FAULTS, UINT64_MAX, false);
    must_ok(brim__device_prepare(&b.device));
    /* the call and each kernel, but no program */
    assert_int_equal(brim__fault_passed(BRIM__FAULT_DEVICE), 1 + BRIM__OPENCL_KERNELS);
    brim__fault_arm(0, 0, false);
    place_close(&a);
    compare_with_host(&b, 43, 2);
    place_close(&b);
    place_open(&a, BRIM_DEVICE_OPENCL); /* the context is another one, and so is the program */
    compare_with_host(&a, 44, 2);
    place_close(&a);
}

static void a_consumers_queue_brings_its_context(void **state) {
    NEEDS_A_DEVICE
    struct consumer consumer;
    struct consumer other;
    consumer_open(&consumer);
    consumer_open(&other);
    const cl_uint users = users_of(&consumer, consumer.context);
    struct place place;
    struct place shared;
    place_open(&shared, BRIM_DEVICE_OPENCL);
    must_ok(brim__device_open(&place.device, BRIM_DEVICE_OPENCL, 0, consumer.queue, NULL));
    must_ok(brim__queue_new(&place.device, &place.queue));
    assert_ptr_equal(place.device.context, consumer.context);
    assert_ptr_not_equal(shared.device.context, consumer.context);
    compare_with_host(&place, 51, 3);

    struct brim__queue queue;
    assert_int_equal(brim__queue_of(&place.device, other.queue, &queue), BRIM_STATUS_INVALID);
    assert_detail_has("the given queue is of another OpenCL context");
    assert_null(queue.handle);
    assert_int_equal(brim__queue_of(&shared.device, consumer.queue, &queue), BRIM_STATUS_INVALID);
    must_ok(brim__queue_of(&place.device, consumer.queue, &queue));

    /* the consumer's queue reads what brim's writes, and brim's waits for its mark */
    uint8_t data[] = { 1, 2, 3, 4 };
    uint8_t given[4] = { 0 };
    struct brim__device_memory memory = put(&place, data, sizeof data);
    struct brim__event there;
    struct brim__event used;
    must_ok(brim__queue_record(&place.queue, &there));
    must_ok(brim__queue_wait(&queue, &there));
    assert_int_equal(consumer.opencl->clEnqueueReadBuffer(consumer.queue, memory.handle, CL_FALSE,
                                                          0, sizeof given, given, 0, NULL, NULL),
                     CL_SUCCESS);
    must_ok(brim__queue_record(&queue, &used));
    must_ok(brim__event_wait(&place.device, &used));
    assert_memory_equal(given, data, sizeof data);
    brim__event_free(&place.device, &there);
    brim__event_free(&place.device, &used);
    brim__device_give(&place.device, &memory);
    brim__queue_free(&queue);
    assert_int_equal(consumer.opencl->clFinish(consumer.queue), CL_SUCCESS); /* still there */
    place_close(&place);
    place_close(&shared);
    wait_for_users(&consumer, consumer.context, users);
    consumer_close(&consumer);
    consumer_close(&other);
}

static void a_queue_of_another_device_is_refused(void **state) {
    NEEDS_A_DEVICE
    struct consumer consumer;
    consumer_open(&consumer);
    const struct brim__opencl *const opencl = consumer.opencl;
    /* a part of the device, which counts as one */
    const intptr_t one_unit[] = { CL_DEVICE_PARTITION_BY_COUNTS, 1, 0, 0 };
    cl_device_id part;
    if (consumer.clCreateSubDevices(opencl->device[0].id, one_unit, 1, &part, NULL)) {
        consumer_close(&consumer);
        print_message("skipped: the device cannot be divided, and there is no other\n");
        skip();
    }
    cl_int error;
    const cl_context context = opencl->clCreateContext(NULL, 1, &part, NULL, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    const cl_command_queue queue = opencl->clCreateCommandQueue(context, part, 0, &error);
    assert_int_equal(error, CL_SUCCESS);
    struct brim__device device;
    assert_int_equal(brim__device_open(&device, BRIM_DEVICE_OPENCL, 0, queue, NULL),
                     BRIM_STATUS_INVALID);
    assert_detail_has("which is not opencl:0");
    assert_int_equal(opencl->clReleaseCommandQueue(queue), CL_SUCCESS);
    assert_int_equal(opencl->clReleaseContext(context), CL_SUCCESS);
    assert_int_equal(consumer.clReleaseDevice(part), CL_SUCCESS);
    consumer_close(&consumer);
}

/* ------------------------------------------------------------------- memory */

static void too_much_memory_is_refused(void **state) {
    NEEDS_A_DEVICE
    struct place place;
    place_open(&place, BRIM_DEVICE_OPENCL);
    brim_device_info info = BRIM_DEVICE_INFO_INIT;
    must_ok(brim_device_read(BRIM_DEVICE_OPENCL, 0, &info));
    assert_true(place.device.largest == info.largest_bytes);
    struct brim__device_memory memory;
    const uint64_t sizes[] = { info.largest_bytes + 1, UINT64_C(1) << 60, UINT64_MAX };
    for (size_t i = 0; i < BRIM__COUNT(sizes); i++) {
        assert_int_equal(brim__device_take(&place.device, sizes[i], &memory), BRIM_STATUS_MEMORY);
        assert_detail_has("opencl:0 allocates at most");
        assert_null(memory.handle);
        /* the driver's own words */
        void *handle = NULL;
        assert_int_equal(place.device.ops->take(&place.device, sizes[i], &handle),
                         BRIM_STATUS_MEMORY);
        assert_detail_has("opencl:0: the driver refused");
        assert_null(handle);
    }
    must_ok(brim__device_take(&place.device, 1, &memory));
    brim__device_give(&place.device, &memory);
    place_close(&place);
}

static void page_locked_memory_is_the_hosts_to_use(void **state) {
    NEEDS_A_DEVICE
    struct place place;
    place_open(&place, BRIM_DEVICE_OPENCL);
    struct brim__pages pages[3];
    void *pin[3];
    for (int i = 0; i < 3; i++) {
        must_ok(brim__pages_new(&pages[i], NULL, 300000, false, false));
        fill_random(pages[i].memory, pages[i].bytes, 61);
        must_ok(brim__device_pin(&place.device, pages[i].memory, pages[i].bytes, &pin[i]));
        uint8_t *const wanted = some_bytes(pages[i].bytes, 61); /* locking changes nothing */
        assert_memory_equal(pages[i].memory, wanted, pages[i].bytes);
        free(wanted);
    }
    uint8_t *const given = malloc(pages[0].bytes);
    assert_non_null(given);
    for (uint64_t turn = 0; turn < 9; turn++) { /* filled, copied, filled again */
        struct brim__pages *const from = &pages[turn % 3];
        fill_random(from->memory, from->bytes, turn);
        struct brim__device_memory memory = put(&place, from->memory, from->bytes);
        wait_for_all(&place.queue);
        get(&place, &memory, given);
        assert_memory_equal(given, from->memory, from->bytes);
        brim__device_give(&place.device, &memory);
    }
    for (int i = 0; i < 3; i++) {
        memcpy(given, pages[i].memory, pages[i].bytes);
        brim__device_unpin(&place.device, pages[i].memory, pin[i]);
        assert_memory_equal(given, pages[i].memory, pages[i].bytes);
        brim__pages_free(&pages[i]);
    }
    free(given);
    place_close(&place);
}

static void what_a_device_keeps_is_charged(void **state) {
    NEEDS_A_DEVICE
    const uint64_t limits[BRIM_MEMORY_KINDS] = { UINT64_C(1) << 20 };
    brim_budget *budget;
    must_ok(brim__budget_root("runtime", limits, &budget));
    brim_budget_info before = BRIM_BUDGET_INFO_INIT;
    brim_budget_info during = BRIM_BUDGET_INFO_INIT;
    brim_budget_info after = BRIM_BUDGET_INFO_INIT;
    struct brim__device device;
    must_ok(brim_budget_read(budget, BRIM_MEMORY_HOST, &before));
    must_ok(brim__device_open(&device, BRIM_DEVICE_OPENCL, 0, NULL, budget));
    must_ok(brim_budget_read(budget, BRIM_MEMORY_HOST, &during));
    brim__device_close(&device);
    brim__device_close(&device); /* harmless */
    must_ok(brim_budget_read(budget, BRIM_MEMORY_HOST, &after));
    assert_true(during.charged > before.charged);
    assert_true(after.charged == before.charged);
    must_ok(brim_budget_charge(budget, BRIM_MEMORY_HOST, limits[0] - after.charged));
    assert_int_equal(brim__device_open(&device, BRIM_DEVICE_OPENCL, 0, NULL, budget),
                     BRIM_STATUS_BUDGET);
    brim__device_close(&device);
    brim__budget_unref(budget);
}

/* ------------------------------------------------------------------- faults */

#define ROW 64

/* All that can be done with a device, until something fails. */
static brim_status use(struct place *place, struct brim__pages *pages,
                       struct brim__device_memory memory[3], struct brim__event *event,
                       uint8_t given[ROW]) {
    brim_status status = BRIM_OK;
    for (int i = 0; i < 3 && status == BRIM_OK; i++) {
        status = brim__device_take(&place->device, 4096, &memory[i]);
    }
    const struct brim__lookup lookup = { .source = &memory[0],
                                         .table = &memory[0],
                                         .table_offset = 1024,
                                         .destination = &memory[1],
                                         .rows = 1,
                                         .element = 4,
                                         .dim = { 1, 1, ROW / 4 },
                                         .stride = { 0, 0, 1 },
                                         .axis = 3 };
    const uint32_t *const number = (const uint32_t *)(pages->memory + 3072);
    const struct brim__gather gather = { .part = { &memory[1] },
                                         .part_rows = 1,
                                         .source_row = ROW,
                                         .destination = &memory[2],
                                         .destination_row = ROW,
                                         .row_bytes = ROW,
                                         .rows = 1,
                                         .number = number,
                                         .numbers = &memory[0],
                                         .numbers_offset = 3072 };
    struct brim__queue *const queue = &place->queue;
    struct brim__event written = { 0 };
    if (status != BRIM_OK || (status = brim__queue_new(&place->device, queue)) != BRIM_OK ||
        (status = brim__queue_write(queue, &memory[0], 0, pages->memory, 4096)) != BRIM_OK ||
        (status = brim__queue_record(queue, &written)) != BRIM_OK ||
        (status = brim__queue_wait(queue, &written)) != BRIM_OK ||
        (status = brim__queue_lookup(queue, &lookup)) != BRIM_OK ||
        (status = brim__queue_gather(queue, &gather)) != BRIM_OK ||
        (status = brim__queue_copy(queue, &memory[2], ROW, &memory[2], 0, ROW)) != BRIM_OK ||
        (status = brim__queue_read(queue, given, &memory[2], ROW, ROW)) != BRIM_OK ||
        (status = brim__queue_flush(queue)) != BRIM_OK ||
        (status = brim__queue_record(queue, event)) != BRIM_OK ||
        (status = brim__event_wait(&place->device, event)) != BRIM_OK) {
        brim__event_free(&place->device, &written);
        return status;
    }
    brim__event_free(&place->device, &written);
    return brim__event_poll(&place->device, event);
}

/* From opening to closing; what it reads at the end is in `given`. */
static brim_status whole_life(struct brim__pages *pages, void *queue, uint8_t given[ROW]) {
    struct place place = { 0 };
    struct brim__device_memory memory[3] = { { 0 } };
    struct brim__event event = { 0 };
    struct brim__queue theirs = { 0 };
    void *pin;
    brim_status status = brim__device_open(&place.device, BRIM_DEVICE_OPENCL, 0, queue, NULL);
    if (status != BRIM_OK) {
        return status;
    }
    status = brim__queue_of(&place.device, queue, &theirs);
    if (status == BRIM_OK) {
        status = brim__device_pin(&place.device, pages->memory, pages->bytes, &pin);
        if (status == BRIM_OK) {
            status = use(&place, pages, memory, &event, given);
            brim__queue_free(&place.queue); /* waits: the pages are in use */
            brim__device_unpin(&place.device, pages->memory, pin);
        }
    }
    brim__event_free(&place.device, &event);
    for (int i = 0; i < 3; i++) {
        brim__device_give(&place.device, &memory[i]);
    }
    brim__queue_free(&theirs);
    brim__device_close(&place.device);
    return status;
}

static void sweep(struct consumer *consumer, unsigned kinds) {
    struct brim__pages pages;
    must_ok(brim__pages_new(&pages, NULL, 4096, false, false));
    fill_random(pages.memory, pages.bytes, 71);
    memset(pages.memory + 3072, 0, 4); /* the row's number */
    uint8_t wanted[ROW];
    uint8_t given[ROW];
    for (int i = 0; i < ROW / 4; i++) {
        memcpy(wanted + 4 * i, pages.memory + 1024 + 4 * pages.memory[i], 4);
    }
    wait_for_users(consumer, consumer->context, 2); /* the test's own, and its queue */
    uint64_t nth = 0;
    for (bool more = true; more;) {
        memset(given, 0, sizeof given);
        brim__fault_arm(kinds, ++nth, false);
        const brim_status status = whole_life(&pages, consumer->queue, given);
        more = brim__fault_injected() > 0;
        brim__fault_arm(0, 0, false);
        if (!more) {
            must_ok(status);
            assert_memory_equal(given, wanted, sizeof wanted);
        } else if (status != BRIM_STATUS_DRIVER && status != BRIM_STATUS_MEMORY) {
            fail_msg("point %llu: %s: %s", (unsigned long long)nth, brim_status_name(status),
                     brim_detail());
        } else {
            assert_true(strlen(brim_detail()) > 10);
        }
        wait_for_users(consumer, consumer->context, 2);
    }
    assert_true(nth > 1);
    brim__pages_free(&pages);
}

static void every_point_fails_cleanly(void **state) {
    NEEDS_A_DEVICE
    struct consumer consumer;
    consumer_open(&consumer);
    sweep(&consumer, DEVICE_FAULTS);
    sweep(&consumer, 1u << BRIM__FAULT_ALLOC | 1u << BRIM__FAULT_MAP);
    consumer_close(&consumer);
}

static void kernels_that_could_not_be_built_are_built_again(void **state) {
    NEEDS_A_DEVICE
    bool more = true;
    for (uint64_t nth = 1; more; nth++) {
        struct place place;
        place_open(&place, BRIM_DEVICE_OPENCL);
        struct brim__device_memory memory;
        must_ok(brim__device_take(&place.device, 4096, &memory));
        const struct brim__lookup lookup = { .source = &memory,
                                             .table = &memory,
                                             .table_offset = 1024,
                                             .destination = &memory,
                                             .destination_offset = 2048,
                                             .rows = 1,
                                             .element = 1,
                                             .dim = { 1, 1, 1 },
                                             .axis = 3 };
        brim__fault_arm(DEVICE_FAULTS, nth, false);
        const brim_status status = brim__queue_lookup(&place.queue, &lookup);
        more = brim__fault_injected() > 0;
        brim__fault_arm(0, 0, false);
        assert_int_equal(status, more ? BRIM_STATUS_DRIVER : BRIM_OK);
        must_ok(brim__queue_lookup(&place.queue, &lookup));
        wait_for_all(&place.queue);
        brim__device_give(&place.device, &memory);
        place_close(&place);
    }
}

static void every_point_of_opening_fails_cleanly(void **state) {
    NEEDS_A_DEVICE
    struct brim__device device;
    brim_status status;
    uint64_t nth = 0;
    do {
        brim__fault_arm(DEVICE_FAULTS, ++nth, false);
        status = brim__device_open(&device, BRIM_DEVICE_OPENCL, 0, NULL, NULL);
        assert_true((status != BRIM_OK) == (brim__fault_injected() > 0));
        brim__fault_arm(0, 0, false);
        brim__device_close(&device);
    } while (status != BRIM_OK);
    assert_int_equal(nth, 4); /* the call, the context, the queue for errands */
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--count") == 0) {
        print_count();
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--faults") == 0) {
        print_faults();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_found_is_found_once),
        cmocka_unit_test(every_point_of_the_search_fails_cleanly),
        cmocka_unit_test(without_a_loader_the_text_says_what_to_install),
        cmocka_unit_test(a_loader_that_is_none_is_refused),
        cmocka_unit_test(without_a_driver_the_text_says_what_to_install),
        cmocka_unit_test(devices_tell_about_themselves),
        cmocka_unit_test(a_forked_child_is_refused),
        cmocka_unit_test(errors_have_names),
        cmocka_unit_test(bytes_go_there_and_back),
        cmocka_unit_test(lookups_and_gathers_equal_the_hosts),
        cmocka_unit_test(work_groups_give_the_same),
        cmocka_unit_test(threads_may_open_and_close_at_once),
        cmocka_unit_test(threads_may_use_one_device_at_once),
        cmocka_unit_test(a_workers_stack_suffices),
        cmocka_unit_test(a_queue_waits_for_the_events_of_another),
        cmocka_unit_test(work_that_failed_says_so),
        cmocka_unit_test(openers_share_a_context_that_goes_with_the_last),
        cmocka_unit_test(openers_share_a_program),
        cmocka_unit_test(a_consumers_queue_brings_its_context),
        cmocka_unit_test(a_queue_of_another_device_is_refused),
        cmocka_unit_test(too_much_memory_is_refused),
        cmocka_unit_test(page_locked_memory_is_the_hosts_to_use),
        cmocka_unit_test(what_a_device_keeps_is_charged),
        cmocka_unit_test(every_point_fails_cleanly),
        cmocka_unit_test(kernels_that_could_not_be_built_are_built_again),
        cmocka_unit_test(every_point_of_opening_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, begin_tests, end_tests);
}
