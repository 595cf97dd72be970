/* SPDX-License-Identifier: Apache-2.0
 *
 * The embedding API: what tools and language clients call. One C table over the core; <tessera/embed.hpp> wraps it for C++.
 * libtessera.so exports one symbol, `tsr_get_api`.
 *
 * Conventions are those of abi.h: struct_size first, errors as `tsr_error*` (the caller frees them with `error_free`).
 * Strings returned as `char*` are owned by the caller: `string_free`. JSON schemas: docs/json.md.
 * Thread-safety: a context, an executable and a callable may be used from many threads at once; a graph by one at a time.
 * Reference counts are atomic.
 */
#ifndef TESSERA_EMBED_H
#define TESSERA_EMBED_H

#include "tessera/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_context tsr_context;       /* a config with its plugins */
typedef struct tsr_executable tsr_executable; /* immutable, reentrant */
typedef struct tsr_callable_handle tsr_callable_handle;
typedef struct tsr_saved tsr_saved;                 /* what one run of a forward half has left; used by one thread at a time */
typedef struct tsr_stream_handle tsr_stream_handle; /* a queue of one device */

/* Where a run takes memory of devices from that have streams. `alloc` gives memory for work that is queued on the stream from
 * now on, aligned to 64 bytes; `free` gets it back behind the work that is queued on the stream. Called from any thread, also
 * after the run, for outputs live on: the functions and `ctx` stay valid until the last block is back. */
typedef struct tsr_allocator {
  size_t struct_size;
  void* ctx;
  tsr_error* (*alloc)(void* ctx, tsr_device, size_t bytes, tsr_stream_handle*, void** out);
  void (*free)(void* ctx, tsr_device, void* p, size_t bytes, tsr_stream_handle*);
} tsr_allocator;

typedef struct tsr_run_options {
  size_t struct_size;
  /* At most one per device. A device that has none here runs on the thread's current stream. */
  tsr_stream_handle* const* streams;
  size_t num_streams;
  const tsr_allocator* allocator; /* NULL: the pool */
} tsr_run_options;

/* A tensor that owns a reference to its buffer. Clients read `desc` directly and never write it; refcount, then memory, are
 * managed by tensor_retain / tensor_release. desc.sizes and desc.strides point into the same allocation. */
typedef struct tsr_tensor_handle {
  tsr_tensor desc;
  int64_t refcount; /* atomic; through tensor_retain / tensor_release only */
  uint32_t requires_grad;
  uint32_t marks; /* what tensor_mark has said about its dimensions; 0: nothing */
} tsr_tensor_handle;

typedef enum tsr_mark { TSR_MARK_DYNAMIC = 1, TSR_MARK_STATIC, TSR_MARK_UNBACKED } tsr_mark;

typedef struct tsr_context_options {
  size_t struct_size;
  const char* config_path; /* NULL: the built-in default (configs/default.toml beside the library) */
  const char* config_text; /* used instead of a file when not NULL; named "<text>" in messages */
  const char* const* overrides;
  size_t num_overrides; /* "partitioner.budget=0.5": TOML values */
  const char* const* plugin_dirs;
  size_t num_plugin_dirs; /* searched before the default directory */
} tsr_context_options;

typedef enum tsr_arg_kind {
  TSR_ARG_TENSOR = 0,
  TSR_ARG_INT,
  TSR_ARG_FLOAT,
  TSR_ARG_BOOL,
  TSR_ARG_STRING,
  TSR_ARG_ENUM,
  TSR_ARG_NONE,
  TSR_ARG_LENGTH,   /* the length of a container, or presence of an optional (0, 1) */
  TSR_ARG_KEYS,     /* the keys of a map, joined by '\n', in order */
  TSR_ARG_SYM_INT,  /* a number whose uses the client reports (tsr_capture_api.scalar): i */
  TSR_ARG_SYM_FLOAT /* f */
} tsr_arg_kind;

typedef struct tsr_arg {     /* one leaf of a call's flattened arguments */
  tsr_tensor_handle* tensor; /* borrowed */
  int64_t i;                 /* of STRING and KEYS: the bytes of s, zero bytes among them included; s[i] is 0 */
  double f;
  const char* s; /* of KEYS: in a key, a backslash stands as two, a line feed as a backslash and an n */
  uint32_t kind; /* tsr_arg_kind */
  uint32_t role; /* TSR_INPUT_ARG, or _PARAM / _STATE for a module's tensors */
} tsr_arg;

typedef enum tsr_guard_kind { TSR_GUARD_VALUE = 1, TSR_GUARD_TENSOR, TSR_GUARD_GLOBAL } tsr_guard_kind;
typedef struct tsr_guard_info { /* what a guard filter is asked about */
  size_t struct_size;
  uint32_t kind; /* tsr_guard_kind; hosts ask about values and tensors, clients about globals */
  uint32_t reserved;
  const char* path; /* "c", "self.weight" */
  const char* text; /* "c == 0.5", "tensor 'x'" */
} tsr_guard_info;

/* *num_outputs of a call that the client is to serve by running its function as it is (tsr_callable_desc.runs_itself). Nothing
 * of the function has run then. */
#define TSR_RUN_YOURSELF ((size_t)-1)

typedef struct tsr_callable_desc {
  size_t struct_size;
  const char* name; /* "fn" */
  tsr_loc loc;      /* of the compile call */
  void* self;
  /* Runs the function over the recorder's inputs (one per tensor leaf, in order). *structure: the client's description of the
   * outputs' nesting, kept with the entry and handed back by `call`. */
  tsr_error* (*invoke)(void* self, tsr_recorder*, const tsr_arg* args, size_t num_args, void** structure);
  void (*structure_free)(void* structure);
  /* The path of leaf `index` for messages ("x", "state['h'][0]"), written into buf; only called off the hot path. */
  void (*path)(void* self, const tsr_arg* args, size_t num_args, size_t index, char* buf, size_t capacity);
  const char* backend; /* NULL: the config's order */
  const char* mode;    /* NULL: the config's */
  int32_t dynamic;     /* -1 auto, 0 false, 1 true */
  uint32_t fullgraph;
  const char* const* options;
  size_t num_options; /* "key=value" as config overrides */
  /* ---- appended since the first version of this struct */
  /* 1: a call that no compiled code serves (by stance, past a limit, after an error that is suppressed) reports
   * TSR_RUN_YOURSELF, and the client runs its function as it is. *structure is then not NULL when compiled functions that it
   * calls must not compile meanwhile: see set_reuse_only. 0: such a call is captured, run on the fallback backend and
   * forgotten. */
  uint32_t runs_itself;
  uint32_t reserved;
  /* UNSAFE. Asked about each guard of a new entry; *keep is 1 beforehand, 0 drops the guard: the entry then serves calls that
   * it was not compiled for, and gives what it was compiled to give. Memory stays safe: types of tensors whose guard is dropped
   * are checked at each call, with errors. Guards on structure, on sizes that are symbols and on relations among them cannot be
   * dropped. NULL: every guard stays. */
  tsr_error* (*guard_filter)(void* self, const tsr_guard_info*, int* keep);
  /* Asked between passes and between kernels of a compile, on the thread of the call that waits for it: an error ends the
   * compile, and is what the call reports; the callable is as if the call had not come. NULL: nobody is asked. */
  tsr_error* (*interrupted)(void* self);
} tsr_callable_desc;

typedef struct tsr_examples { /* calls to compile for before they come */
  size_t struct_size;
  void* self;
  size_t count;
  /* The arguments of call `index`, valid until callable_compile_ahead returns. Always on the thread that called that, and
   * before `invoke`, `path` and `guard_filter` of the callable are asked about them. */
  tsr_error* (*get)(void* self, size_t index, const tsr_arg** args, size_t* num_args);
  uint32_t threads; /* that compile; 0: as many as parallel loops have */
  uint32_t reserved;
} tsr_examples;

typedef struct tsr_binding { /* the value of an input, fixed while its model is imported */
  const char* name;
  const tsr_tensor* value; /* dense host memory; borrowed */
} tsr_binding;

typedef struct tsr_client_result { /* what a client step gives for one of its results */
  tsr_tensor tensor;               /* strides NULL: dense row-major; flags are not read */
  void (*release)(void* ctx);      /* called once, on any thread, when nobody reads the memory any more; may be NULL */
  void* ctx;
} tsr_client_result;

typedef struct tsr_client_call { /* one run of one client step. Everything here is valid until the callback returns */
  size_t struct_size;
  int64_t step; /* the attributes of the op `client_step` or `client_effect` */
  const char* name;
  /* Dense row-major, in memory of the run that later steps may use again: nothing may keep it, and nothing may write to it.
   * What lies on a device with streams has been computed, and the client waits for what it queues there itself, unless the call
   * says client_queues. */
  const tsr_tensor* inputs;
  const tsr_tensor* expected; /* by result: dtype, rank, sizes and device. A size that only the step can tell is -1 */
  tsr_client_result*
      results; /* to be filled in; `sizes` and `strides` of the tensors are copied. Also after an error: `release` is called */
  uint32_t num_inputs, num_results;
  /* Inputs of the graph, by number, that neither this step nor anything behind it reads. One may be named in several calls. */
  const uint32_t* finished;
  uint32_t num_finished, reserved;
} tsr_client_call;

typedef struct tsr_raw_call { /* one run over memory that the caller owns */
  size_t struct_size;
  const tsr_tensor* inputs; /* borrowed; one per graph input, in order. strides NULL: dense row-major; flags are not read */
  size_t num_inputs;
  size_t num_outputs;
  void* self;
  /* Gives the memory of output `index`: dense row-major, aligned to 64 bytes, on described->device, overlapping no input.
   * `described` has its dtype, rank, sizes and strides (data is NULL), valid for the call. *data may stay NULL when `bytes` is
   * 0. Called once per output on the thread that called run_raw, in no particular order, before anything is written to it.
   * After an error outputs hold anything. */
  tsr_error* (*output)(void* self, size_t index, const tsr_tensor* described, size_t bytes, void** data);
  /* ---- appended since the first version of this struct */
  /* Runs a step of the client: ops `client_step` and `client_effect`, one after the other in the order of the graph, on the
   * thread that called run_raw. An error ends the call. NULL: a graph that has such steps cannot run (TSR-R028). */
  tsr_error* (*client_step)(void* self, tsr_client_call*);
  /* For profilers: told of each kernel on the thread that called run_raw, before its launch with its name in the step table and
   * the place in the program that it came from, and behind it with a NULL name. A device may run it later. Executors then leave
   * their steps to launches one by one. NULL: nobody is told. */
  void (*kernel)(void* self, const char* name, const tsr_loc* from);
  /* Not 0: steps of the client queue what they do on the thread's current stream of each device, and give memory that is taken
   * back in the order of that stream. Where the run is on the same stream, neither waits for the other. */
  uint32_t client_queues, reserved;
  /* Told of an input that the graph calls a donated argument as soon as the last step that reads it has been queued, on the
   * thread that called run_raw: the caller may give its memory back in the order of the current stream of its device. With it,
   * and where one stream runs the whole plan, `output` is called for each output when the step that writes it first is due, so
   * that outputs find the room that those inputs leave. After an error some inputs have not been told of. NULL: all stay. */
  void (*let_go)(void* self, size_t input);
} tsr_raw_call;

typedef struct tsr_api {
  size_t struct_size;
  uint32_t abi_major, abi_minor;
  const char* version;
  const tsr_host* host; /* errors, logs, devices, capture services */

  void (*error_free)(tsr_error*);
  void (*string_free)(char*);

  /* ---- context */
  tsr_error* (*context_create)(const tsr_context_options*, tsr_context**);
  void (*context_destroy)(tsr_context*);
  tsr_error* (*config_explain)(tsr_context*, char** json); /* every value and where it came from */
  tsr_error* (*config_options)(tsr_context*, char** json); /* all known keys with type, range, default, help */
  tsr_error* (*plugin_list)(const tsr_context_options*, int all, char** json); /* without loading; faults included */
  tsr_error* (*plugin_check)(const char* path, char** json);                   /* one library or manifest */
  tsr_error* (*op_list)(tsr_context*, char** json);                            /* records */
  tsr_error* (*loaded)(tsr_context*, char** json);                             /* plugins and factories in use */

  /* ---- tensors: buffers are 64-byte aligned, refcounted, pooled per device */
  tsr_error* (*tensor_create)(uint32_t dtype, uint32_t rank, const int64_t* sizes, tsr_device, tsr_tensor_handle**);
  tsr_error* (*tensor_wrap)(const tsr_tensor* desc, void (*deleter)(void* ctx), void* ctx,
                            tsr_tensor_handle**); /* no copy; strides NULL: dense */
  tsr_error* (*tensor_view)(tsr_tensor_handle* base, int64_t offset, uint32_t rank, const int64_t* sizes,
                            const int64_t* strides, tsr_tensor_handle**); /* offset in elements from base's first */
  tsr_error* (*tensor_copy)(tsr_tensor_handle* from, tsr_device to, tsr_tensor_handle** dense); /* always a dense copy */
  void (*tensor_retain)(tsr_tensor_handle*);
  void (*tensor_release)(tsr_tensor_handle*);
  tsr_error* (*tensor_from_dlpack)(void* dl_managed_tensor, tsr_tensor_handle**); /* DLManagedTensor*: consumed on success */
  tsr_error* (*tensor_to_dlpack)(tsr_tensor_handle*, void** dl_managed_tensor);
  int64_t (*memory_in_use)(tsr_device);
  int64_t (*memory_peak)(tsr_device, int reset);

  /* ---- graphs */
  tsr_error* (*graph_load)(tsr_context*, const char* path, tsr_graph**); /* through the frontend that takes the file */
  tsr_error* (*graph_parse)(tsr_context*, const char* text, size_t length, const char* file, tsr_graph**);
  tsr_error* (*graph_clone)(tsr_graph*, tsr_graph**);
  void (*graph_destroy)(tsr_graph*);
  tsr_error* (*graph_print)(tsr_graph*, uint32_t flags, char** text); /* TSR_PRINT_* */
  tsr_error* (*graph_verify)(tsr_graph*);
  const tsr_tables* (*graph_tables)(const tsr_graph*);
  /* pipeline: "canonicalize,cse,dce" or "fuse{max_size=64}"; NULL: the config's. *report: timing tree as JSON, may be NULL. */
  tsr_error* (*graph_run_passes)(tsr_context*, tsr_graph*, const char* pipeline, char** report);

  /* ---- executables */
  /* Takes the graph through the rest of the pipeline. The graph is consumed. backends: "eager,reference" or NULL. */
  tsr_error* (*compile)(tsr_context*, tsr_graph*, const char* backends, tsr_executable**);
  void (*executable_destroy)(tsr_executable*);
  /* inputs: one per graph input, in order (args, params and states as the graph lists them). outputs: new references. */
  tsr_error* (*run)(tsr_executable*, tsr_tensor_handle* const* inputs, size_t num_inputs, tsr_tensor_handle** outputs,
                    size_t num_outputs);
  tsr_error* (*executable_describe)(tsr_executable*, char** json); /* signature, step table, memory plan, compile times */
  const tsr_tables* (*executable_graph)(const tsr_executable*);    /* the final graph */

  /* ---- callables: capture on the first call, dispatch later */
  tsr_error* (*callable_create)(tsr_context*, const tsr_callable_desc*, tsr_callable_handle**);
  void (*callable_destroy)(tsr_callable_handle*);
  tsr_error* (*call)(tsr_callable_handle*, const tsr_arg* args, size_t num_args, tsr_tensor_handle** outputs, size_t capacity,
                     size_t* num_outputs, void** structure);
  tsr_error* (*callable_describe)(tsr_callable_handle*, char** json); /* entries, guards, counts */
  void (*callable_reset)(tsr_callable_handle*);

  /* ---- one op on concrete tensors, now (cached by signature, runs on the config's fallback backend) */
  tsr_error* (*eager_op)(tsr_context*, const char* op, tsr_tensor_handle* const* operands /* NULL: omitted */,
                         size_t num_operands, const tsr_attr* attrs, size_t num_attrs, tsr_tensor_handle** results,
                         size_t capacity, size_t* num_results);

  /* ---- appended since the first version of this table */
  /* As graph_load; the inputs named by bindings become constants, for models that compute shapes from them. A name that the
   * frontend does not ask for is an error (TSR-E013). */
  tsr_error* (*graph_load_bound)(tsr_context*, const char* path, const tsr_binding* bindings, size_t count, size_t stride,
                                 tsr_graph**);
  tsr_error* (*config_modes)(char** json); /* the modes: name, help, what each sets; needs no context */
  /* Says how compiled functions treat a dimension of this tensor. DYNAMIC: a symbol in [min, max] from the first compile on,
   * and an error (TSR-D001) when the function needs its value; STATIC: a number; UNBACKED: a symbol that nothing may be guarded
   * on. Dimensions count from the end when negative. Throws TSR-D003 for a dimension that is not there or an empty range. */
  tsr_error* (*tensor_mark)(tsr_tensor_handle*, int64_t dim, uint32_t tsr_mark, int64_t min, int64_t max);
  void (*reset)(void); /* callable_reset of every callable there is: frames count from 0 again */
  /* Whether this thread records gradients: part of every guard. */
  int (*grad_enabled)(void);
  int (*set_grad_enabled)(int on); /* what it was */
  /* The context's cache (TSR-K002: it has none): its entries; the least recently used removed until max_bytes are left; all of
   * it into one file; a file that was exported into it. */
  tsr_error* (*cache_list)(tsr_context*, char** json);
  tsr_error* (*cache_prune)(tsr_context*, uint64_t max_bytes, char** json);
  tsr_error* (*cache_export)(tsr_context*, const char* path, char** json);
  tsr_error* (*cache_import)(tsr_context*, const char* path, char** json);
  /* How every callable of the process behaves: "default", "force_eager", "eager_on_recompile", "fail_on_recompile",
   * "eager_then_compile", "aot_eager_then_compile". Throws TSR-D004 for another name. */
  tsr_error* (*set_stance)(const char* name);
  const char* (*stance)(void);
  int (*set_reuse_only)(int on);                    /* of this thread: use entries, compile nothing; what it was */
  void (*callable_recompile)(tsr_callable_handle*); /* the entries there are serve no call any more */
  /* graph_run_passes with the config's pipeline, then compile with its backends; a cache that knows the result saves both. */
  tsr_error* (*compile_model)(tsr_context*, tsr_graph*, tsr_executable**);
  /* Large entries of the cache are written beside the program's work: waits until all of them are. Without a cache: nothing. */
  void (*cache_flush)(tsr_context*);
  /* Reads every entry whole and checks it; what is damaged is removed. */
  tsr_error* (*cache_verify)(tsr_context*, char** json);
  /* Makes entries for calls before they come, and runs none of them: examples are traced one after the other on this thread and
   * compiled in parallel. *compiled: how many entries were made, also after an error; examples that entries serve already make
   * none. An error is that of the first example that failed, whose number is in *failed (may be NULL); the others have been
   * compiled. TSR-D014: it has a graph break. */
  tsr_error* (*callable_compile_ahead)(tsr_callable_handle*, const tsr_examples*, size_t* compiled, size_t* failed);
  tsr_error* (*executable_plan)(tsr_executable*, char** text); /* step table and memory plan, for people */
  /* The final graph with its fused groups, kernels and backends as a file for Graphviz (DOT); a path that ends in ".svg" is
   * drawn by Graphviz's `dot`. TSR-E014: it cannot be; then the text lies beside it, as PATH.dot. TSR-E010: the file cannot be
   * written. */
  tsr_error* (*executable_diagram)(tsr_executable*, const char* path);
  /* A graph made by calls: `build` edits an empty graph of that name through tsr_host.graph (input_create, node_create,
   * region_set_outputs, ...), where the graph is verified when it returns. An error of `build` is handed on. Handles are valid
   * until `build` returns. */
  tsr_error* (*graph_build)(tsr_context*, const char* name, tsr_error* (*build)(void* self, tsr_graph*), void* self,
                            tsr_graph**);
  /* While a graph is being built: the symbol of this name, in [min, max]; `hint`: a value that calls have, or -1. Throws
   * TSR-S002 for a name that is taken, TSR-S006 for an empty range. */
  tsr_error* (*graph_symbol)(tsr_graph*, const char* name, int64_t min, int64_t max, int64_t hint, tsr_dim* out);
  /* As `run`, on plain tensors. States are written in place. */
  tsr_error* (*run_raw)(tsr_executable*, const tsr_raw_call*);
  /* As graph_load, for a call whose arguments these are, by the names of the model's inputs; one without data says its type
   * only. What the import has to know of them is fixed in the graph: the value of an input that shapes are computed from (it
   * becomes a constant), how sizes compare where that decides between branches, and sizes that contradict what the graph would
   * assume of them (they become numbers). Where the arguments do not say enough, *out is NULL, and *inputs a graph of the
   * inputs that the file declares. *report, which may be NULL: what was fixed, what is assumed, and which inputs lack
   * something, as JSON. */
  tsr_error* (*graph_load_for)(tsr_context*, const char* path, const tsr_binding* arguments, size_t count, size_t stride,
                               tsr_graph** out, tsr_graph** inputs, char** report);
  /* A model file as a callable: `call` takes one tensor per input, in the order of *inputs (may be NULL), a graph of the inputs
   * that the file declares. What of a call's arguments the graph depends on, as graph_load_for says, is guarded; all other
   * sizes may vary as the file says. A call that no guard lets reuse compiled code compiles again; one that does not fit the
   * file's types is an error (TSR-T021 to T026). Outputs have no structure. */
  tsr_error* (*callable_load)(tsr_context*, const char* path, tsr_callable_handle**, tsr_graph** inputs);

  /* ---- streams: queues of devices. Work on one runs in order; what one queue needs of another, the library waits for. Every
   * thread has a current stream per device, at first the one that all threads share. A function that takes a device's stream
   * throws TSR-R040 for one of another device. */
  tsr_error* (*stream_create)(tsr_device, tsr_stream_handle**);
  /* A stream of another library (cudaStream_t), which must outlive what runs on it. TSR-R041: the device takes none. */
  tsr_error* (*stream_wrap)(tsr_device, void* native, tsr_stream_handle**);
  void (*stream_destroy)(tsr_stream_handle*); /* waits for what is queued on it. No thread may use it any more */
  tsr_device (*stream_device)(const tsr_stream_handle*);
  tsr_error* (*current_stream)(tsr_device, tsr_stream_handle**);
  /* NULL: the one that all threads share. *before: what was current; may be NULL. */
  tsr_error* (*set_current_stream)(tsr_device, tsr_stream_handle*, tsr_stream_handle** before);
  /* Work queued on `waiter` from now on runs after what is queued on `other` by now. */
  tsr_error* (*stream_wait)(tsr_stream_handle* waiter, tsr_stream_handle* other);
  /* Waits for everything queued on the stream; NULL: on every stream of the device. Throws what kernels have found wrong with
   * their data. */
  tsr_error* (*synchronize)(tsr_device, tsr_stream_handle*);
  /* `run` on streams and with memory of the caller's choice. options NULL: none given. */
  tsr_error* (*run_with)(tsr_executable*, const tsr_run_options* options, tsr_tensor_handle* const* inputs, size_t num_inputs,
                         tsr_tensor_handle** outputs, size_t num_outputs);
  /* ---- programs in two halves: functions that ask for cotangents (op `tangent`) */
  /* What the backward half of this call needs, right after `call` gave `structure` and `outputs`: the function's own results
   * that depend on no cotangent, and then what is kept. *saved NULL: the function asks for no cotangents. */
  tsr_error* (*callable_save)(tsr_callable_handle*, const void* structure, const tsr_arg* args, size_t num_args,
                              tsr_tensor_handle* const* outputs, size_t num_outputs, tsr_saved** saved);
  size_t (*saved_num_gradients)(const tsr_saved*);
  /* Runs the backward half. gradients: new references. Once: what was kept is released, and a second call is TSR-A020. */
  tsr_error* (*saved_backward)(tsr_saved*, tsr_tensor_handle* const* cotangents, size_t num_cotangents,
                               tsr_tensor_handle** gradients, size_t num_gradients);
  void (*saved_destroy)(tsr_saved*);
  /* The plans that the config's partitioner chooses from for a training step, by ascending recompute time. The graph is
   * consumed. JSON: docs/json.md, "memory plans". */
  tsr_error* (*memory_plans)(tsr_context*, tsr_graph*, char** json);
  /* ---- writes in place. Memory has a version, which every write that the host knows of raises: those of states by a run, and
   * these two. Backward halves refuse tensors that have been written since their forward half ran (TSR-A022). */
  /* Copies the elements of `from` into `to`, which has its dtype and sizes (TSR-T029). */
  tsr_error* (*tensor_write)(tsr_tensor_handle* to, tsr_tensor_handle* from);
  /* Says that the caller has written the tensor's memory, through desc.data or an exported tensor. */
  void (*tensor_written)(tsr_tensor_handle*);
  /* ---- long work */
  /* From now on `listener` is told what plugins say of work of seconds: `done` of `total` units of `what`, ended when they are
   * equal. It takes the place of the listener before; NULL: nobody listens. One for the process. It is called on the threads
   * that work, one call at a time, and must return soon, not throw and not call this library. When this function returns, the
   * listener before is not called any more. */
  void (*listen_to_progress)(void (*listener)(void* context, const char* what, uint64_t done, uint64_t total), void* context);
} tsr_api;

#define TSR_PRINT_LOCATIONS 1u
#define TSR_PRINT_AUTHORS   2u
/* Constants of the main region with more than TSR_PRINT_PARAMS_ABOVE elements are printed as `param` inputs of their names,
 * after the graph's own inputs: the text is that of a graph which computes the same from them. */
#define TSR_PRINT_PARAMS       16u
#define TSR_PRINT_PARAMS_ABOVE 64

/* NULL when the library cannot serve this major version. */
TSR_EXPORT const tsr_api* tsr_get_api(uint32_t abi_major);

#ifdef __cplusplus
}
#endif
#endif /* TESSERA_EMBED_H */
