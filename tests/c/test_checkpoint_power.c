/* Power cuts: what a checkpoint's system calls could have left on the disk, if the power had gone
 * after any of them, is built from a record of them, and restarted from. Data that was not synced
 * is lost, torn or there, in any combination; names that were not synced are old or new.
 *
 * What was promised as finished, or something newer, is there, bit for bit, and nothing that is not
 * whole has a checkpoint's name. */
#include "recorded_calls.h"

#include "checkpoint_rank_threads.h"
#include "checkpoint_shards.h"
#include "portion.h"

#define SECTOR_NBYTES ((size_t)512)
#define STATES 2000 /* times test_times() */

#define WRITERS 7
#define STEPS 5

static const int64_t shape[] = {60, 200};
static const gpuf_checkpoint_mode modes[WRITERS] = {
    GPUF_CHECKPOINT_DEVICE_COPY,    GPUF_CHECKPOINT_PINNED,         GPUF_CHECKPOINT_DEVICE_COPY,
    GPUF_CHECKPOINT_DEVICE_ENCODED, GPUF_CHECKPOINT_DEVICE_ENCODED, GPUF_CHECKPOINT_DEVICE_COPY,
    GPUF_CHECKPOINT_PINNED};
static const size_t shard_counts[WRITERS] = {0, 0, 0, 0, 2, 2, 3};

/* The versions of the state are numbered in the order in which they are committed. */
static gpuf_tensor state_of(uint64_t version) {
  return create_cpu(version % 2 ? GPUF_DTYPE_FLOAT32 : GPUF_DTYPE_UINT8, 2, shape, version);
}

/* --- The record ------------------------------------------------------------------ */

/* From the device, so that chunks are written by several threads where the file is recycled. */
static void write_version(gpuf_checkpoint *c, int64_t step, uint64_t version) {
  gpuf_tensor expected = state_of(version), u = copy_to_device(&expected);
  CHECK_OK(gpuf_checkpoint_begin(c, step, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "group/u", &u, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "v", &u, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add(c, "w", &u, NULL, &err));
  CHECK_OK(gpuf_checkpoint_add_int64(c, "version", (int64_t)version, &err));
  CHECK_OK(gpuf_checkpoint_commit(c, GPUF_STREAM_NONE, &err));
  CHECK_OK(gpuf_checkpoint_wait(c, -1, NULL, &err));
  DESTROY(&u, &expected);
  record_promise(version);
}

/* --- Ranks ------------------------------------------------------------------------- */

/* Nothing is promised where one of them failed. */
static bool promise_with_ranks(int64_t step, uint64_t version) {
  gpuf_tensor whole = state_of(version);
  const bool are_well = write_with_ranks(step, version, &whole);
  destroy(&whole);
  if (are_well) {
    record_promise(version);
  }
  return are_well;
}

/* The second ones replace a step. */
static void record_ranks(gpuf_checkpoint_options options, int64_t first_step, uint64_t version) {
  options.recycle = options.uncompressed = false;
  for (int count = 2; count <= RANKS_MAX; count++) {
    options.mode = count == 2 ? GPUF_CHECKPOINT_DEVICE_COPY : GPUF_CHECKPOINT_PINNED;
    options.shard_count = (size_t)count - 1;
    options.replace = count == 3;
    open_ranks(count, &options);
    for (int i = 0; i < 4; i++) {
      CHECK(promise_with_ranks(first_step, ++version));
      first_step += count == 2 || i != 1;
    }
    close_ranks();
  }
}

/* --- Writers ----------------------------------------------------------------------- */

static void forget_records(void) {
  *recorded_folder = '\0';
  for (int i = 0; i < record_count; i++) {
    free(records[i].bytes);
  }
  record_count = recorded_file_count = recorded_copy_count = mapping_count = 0;
}

/* Writers one after the other, and then ranks. Of the writers the second replaces a step, and the
 * third and the fourth overwrite files that have expired. The last three write shards: the first of
 * them replaces a step, and the others overwrite shards. */
static void record_cycles(bool is_synced) {
  static const int64_t steps[WRITERS][STEPS] = {
      {0, 1, 2, 3, 4},      {5, 6, 7, 7, 7},      {8, 9, 10, 11, 12},  {13, 14, 14, 15, 15},
      {16, 17, 18, 18, 18}, {19, 20, 21, 22, 23}, {24, 25, 25, 26, 27}};
  gpuf_checkpoint_options options = options_in_folder("run");
  uint64_t version = 0;
  make_folder();
  forget_records();
  CHECK(realpath(folder, recorded_folder));
  for (int writer = 0; writer < WRITERS; writer++) {
    options.unsynced = !is_synced;
    options.keep_count = 2;
    options.uncompressed = writer == 0;
    options.replace = writer % 2 == 1 || writer >= 4;
    options.recycle = writer >= 2 && writer != 4;
    options.shard_count = shard_counts[writer];
    options.device = host_device;
    options.mode = modes[writer];
    options.state_nbytes = 1 << 20;
    gpuf_checkpoint *const c = open_writer(&options);
    for (int i = 0; i < STEPS; i++) {
      write_version(c, steps[writer][i], ++version);
    }
    CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
  }
  record_ranks(options, steps[WRITERS - 1][STEPS - 1] + 1, version);
  *recorded_folder = '\0';
  CHECK(!record_is_full && record_count > 100 && recorded_copy_count > 5);
  remove_folder();
}

/* --- What the disk has ------------------------------------------------------------- */

/* What becomes of changes that were not synced. */
typedef enum fate { ALL_LOST, ALL_THERE, FIRST_THERE, ANY_THERE, ANY_TORN, FATE_COUNT } fate;

typedef struct name {
  char text[NAME_NBYTES];
  int file;
} name;

typedef struct disk {
  struct {
    unsigned char *bytes;
    size_t nbytes, capacity;
  } files[FILES_MAX];
  name names[FILES_MAX];
  int name_count;
} disk;

static disk now;
static uint64_t state;

static bool chance(uint64_t of) {
  return random_below(&state, of) == 0;
}

static bool is_of_names(const record *r) {
  return r->kind >= RECORD_CREATE && r->kind <= RECORD_UNLINK;
}

/* Whether a change is on the disk for certain once the first `count` calls were made. */
static bool is_synced(int at, int count) {
  const record *const r = &records[at];
  for (int i = at + 1; i < count; i++) {
    if (is_of_names(r) ? records[i].kind == RECORD_SYNC_FOLDER
                       : records[i].kind == RECORD_SYNC_FILE && records[i].file == r->file) {
      return true;
    }
  }
  return false;
}

static int find_name(const char *text) {
  int i = 0;
  while (i < now.name_count && strcmp(now.names[i].text, text) != 0) {
    i++;
  }
  return i;
}

static void set_name(const char *text, int file) {
  const int i = find_name(text);
  CHECK(i < FILES_MAX);
  snprintf(now.names[i].text, sizeof(now.names[i].text), "%s", text);
  now.names[i].file = file;
  now.name_count += i == now.name_count;
}

static void remove_name(const char *text) {
  const int i = find_name(text);
  if (i < now.name_count) {
    now.names[i] = now.names[--now.name_count];
  }
}

static void change_names(const record *r, int file) {
  if (r->kind == RECORD_CREATE) {
    set_name(r->from, file);
  } else if (r->kind == RECORD_UNLINK) {
    remove_name(r->from);
  } else {
    set_name(r->to, file);
    if (r->kind == RECORD_RENAME) {
      remove_name(r->from);
    }
  }
}

static void resize(int file, size_t nbytes) {
  if (nbytes > now.files[file].capacity) {
    now.files[file].capacity = 2 * nbytes;
    now.files[file].bytes = realloc(now.files[file].bytes, 2 * nbytes);
    CHECK(now.files[file].bytes);
  }
  if (nbytes > now.files[file].nbytes) {
    memset(now.files[file].bytes + now.files[file].nbytes, 0, nbytes - now.files[file].nbytes);
  }
  now.files[file].nbytes = nbytes;
}

static void write_bytes(const record *r, bool is_torn) {
  const size_t end = (size_t)r->offset + r->nbytes;
  if (end > now.files[r->file].nbytes) {
    resize(r->file, end);
  }
  for (size_t done = 0; done < r->nbytes;) {
    const size_t at = (size_t)r->offset + done;
    const size_t left = SECTOR_NBYTES - at % SECTOR_NBYTES;
    const size_t nbytes = left < r->nbytes - done ? left : r->nbytes - done;
    if (!is_torn || chance(2)) {
      memcpy(now.files[r->file].bytes + at, r->bytes + done, nbytes);
    }
    done += nbytes;
  }
}

/* Whether a change that was not synced is on the disk. `first_lost` is the first one that is not
 * where they come in order. */
static bool survives(fate f, int at, int first_lost) {
  return f == ALL_THERE || (f == FIRST_THERE && at < first_lost) || (f >= ANY_THERE && chance(2));
}

/* The file that each change of names is about, whatever became of those before. */
static int file_of_name[RECORDED_MAX];

static void find_files(void) {
  now.name_count = 0;
  for (int i = 0; i < record_count; i++) {
    const record *const r = &records[i];
    if (is_of_names(r)) {
      const int named = find_name(r->from);
      file_of_name[i] = r->kind == RECORD_CREATE ? r->file
                        : named < now.name_count ? now.names[named].file
                                                 : -1;
      CHECK(file_of_name[i] >= 0);
      change_names(r, file_of_name[i]);
    }
  }
}

/* After the first `count` calls. */
static void cut_power(int count, fate data, fate names) {
  const int data_lost = (int)random_below(&state, (uint64_t)count + 1);
  const int names_lost = (int)random_below(&state, (uint64_t)count + 1);
  now.name_count = 0;
  for (int file = 0; file < recorded_file_count; file++) {
    now.files[file].nbytes = 0;
  }
  for (int i = 0; i < count; i++) {
    const record *const r = &records[i];
    const fate f = is_of_names(r) ? names : data;
    const bool is_certain = is_synced(i, count);
    if (!is_certain && !survives(f, i, is_of_names(r) ? names_lost : data_lost)) {
      continue;
    }
    if (is_of_names(r)) {
      change_names(r, file_of_name[i]);
    } else if (r->kind == RECORD_WRITE) {
      write_bytes(r, !is_certain && data == ANY_TORN);
    } else if (r->kind == RECORD_TRUNCATE) {
      resize(r->file, r->nbytes);
    }
  }
}

/* --- Restarts ---------------------------------------------------------------------- */

static void build_folder(void) {
  make_folder();
  for (int i = 0; i < now.name_count; i++) {
    const int file = now.names[i].file;
    FILE *const out = fopen(path_in_folder(now.names[i].text), "wb");
    CHECK(out);
    const size_t nbytes = now.files[file].nbytes;
    CHECK(nbytes == 0 || fwrite(now.files[file].bytes, 1, nbytes, out) == nbytes);
    CHECK(fclose(out) == 0);
  }
}

static uint64_t promised_version(int count) {
  uint64_t version = 0;
  for (int i = 0; i < count; i++) {
    version = records[i].kind == RECORD_PROMISE ? records[i].offset : version;
  }
  return version;
}

/* Whether each file that has a checkpoint's name is whole, the older ones too. */
static bool all_are_whole(void) {
  bool are_whole = true;
  for (int i = 0; i < now.name_count && are_whole; i++) {
    gpuf_restart *r = NULL;
    gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
    long long step = -1;
    int nbytes = 0;
    if (sscanf(now.names[i].text, "run-%lld.h5%n", &step, &nbytes) == 1 &&
        nbytes == (int)strlen(now.names[i].text)) { /* and no shard */
      are_whole = gpuf_restart_open(folder, "run", step, &r, &report, &err) == GPUF_OK && r &&
                  report.step == step;
      gpuf_restart_close(r);
    }
  }
  return are_whole;
}

/* Whether the newest checkpoint is whole and at least `promised`; with `continues`, and whether the
 * next writer goes on from there. */
static bool restarts(uint64_t promised, bool continues) {
  gpuf_restart *r = NULL;
  gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
  int64_t version = 0;
  bool is_right = gpuf_restart_open(folder, "run", -1, &r, &report, &err) == GPUF_OK &&
                  report.skipped_count == 0 && (r || promised == 0);
  if (r) {
    CHECK_OK(gpuf_restart_get_int64(r, "version", &version, &err));
    gpuf_tensor expected = state_of((uint64_t)version), found = state_of((uint64_t)version);
    memset(found.data, 0xee, gpuf_tensor_nbytes(&found));
    is_right = is_right && (uint64_t)version >= promised;
    for (size_t i = 0; i < 3; i++) {
      CHECK_OK(gpuf_restart_read(r, gpuf_restart_name(r, i), &found, NULL, &err));
      is_right = is_right && memcmp(found.data, expected.data, gpuf_tensor_nbytes(&found)) == 0;
    }
    DESTROY(&expected, &found);
  }
  gpuf_restart_close(r);
  is_right = is_right && all_are_whole();
  if (is_right && continues) {
    gpuf_checkpoint_options options = options_in_folder("run");
    gpuf_checkpoint *const c = open_writer(&options);
    CHECK(count_files(".tmp", false) == 0 && count_orphans() == 0);
    write_version(c, report.step + 1, 77);
    CHECK_OK(gpuf_checkpoint_close(c, NULL, &err));
    gpuf_restart_close(open_restart("run", report.step + 1));
  }
  return is_right;
}

/* Try a portion of `count` states of the disk: how many do not restart as promised. */
static int try_states(int turn, int count) {
  const portion p = portion_of_cases(turn);
  int bad_count = 0;
  find_files();
  for (int i = (int)p.first - 1; i < count; i += (int)p.step) {
    /* After each call in turn, and then after any. */
    const int calls =
        i < record_count ? i + 1 : 1 + (int)random_below(&state, (uint64_t)record_count);
    const fate data = (fate)random_below(&state, FATE_COUNT);
    const fate names = (fate)random_below(&state, ANY_TORN);
    cut_power(calls, data, names);
    build_folder();
    if (!restarts(promised_version(calls), i % 50 < p.step)) {
      bad_count++;
      printf("# after %d of %d calls, data %d, names %d: version %d was promised; %s\n", calls,
             record_count, data, names, (int)promised_version(calls), err.message);
    }
    remove_folder();
    if (bad_count == 3) {
      break;
    }
  }
  return bad_count;
}

static void a_power_cut_after_any_call_loses_nothing(void) {
  const int count = STATES * test_times();
  state = (uint64_t)count;
  record_cycles(true);
  CHECK(count > record_count);
  CHECK(try_states(0, count) == 0);
  printf("# %d calls, of %d states a portion\n", record_count, count);
}

/* The ranks learn of it, nobody removes shards that the master names, and it may be there or not
 * after a power cut; the next one is promised again. */
static void a_folder_that_does_not_sync_once_the_master_is_named_takes_nothing(void) {
  gpuf_checkpoint_options options = options_in_folder("run");
  gpuf_restart_report report = GPUF_RESTART_REPORT_INIT;
  gpuf_restart *r = NULL;
  make_folder();
  forget_records();
  CHECK(realpath(folder, recorded_folder));
  options.unsynced = false;
  options.keep_count = 2;
  options.device = host_device;
  options.state_nbytes = 1 << 20;
  open_ranks(2, &options);
  CHECK(promise_with_ranks(1, 1));
  naming_fails = true;
  CHECK(!promise_with_ranks(2, 2));
  naming_fails = false;
  CHECK(ranks[0].status == GPUF_ERR_IO && ranks[0].error.native_code == EIO);
  CHECK(ranks[1].status == GPUF_ERR_STATE && strstr(ranks[1].error.message, "rank 0 failed"));
  CHECK(count_files("run-000000000002", false) == 1 + 2 && count_files(".part", false) == 0);
  CHECK_OK(gpuf_restart_open(folder, "run", -1, &r, &report, &err));
  CHECK(r && report.step == 2 && report.skipped_count == 0);
  gpuf_restart_close(r);
  CHECK(promise_with_ranks(3, 3) && promise_with_ranks(4, 4));
  close_ranks();
  CHECK(count_files("run-", false) == 2 * (1 + 2) && count_orphans() == 0);
  *recorded_folder = '\0';
  CHECK(!record_is_full);
  remove_folder();
  state = 7;
  CHECK(try_states(1, 4 * record_count) == 0);
}

/* Without fsync nothing is promised; and these states would show if it were missing. */
static void without_fsync_a_power_cut_shows(void) {
  record_cycles(false);
  CHECK(try_states(0, STATES) > 0);
}

int main(void) {
  test_device = host_device;
  TEST(a_power_cut_after_any_call_loses_nothing);
  TEST(a_folder_that_does_not_sync_once_the_master_is_named_takes_nothing);
  TEST(without_fsync_a_power_cut_shows);
  forget_records();
  for (int file = 0; file < FILES_MAX; file++) {
    free(now.files[file].bytes);
  }
  return test_finish();
}
