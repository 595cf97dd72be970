/* SPDX-License-Identifier: Apache-2.0
 *
 * Tessera's plugin boundary: plain C11, also valid C++20. A plugin is one shared library that exports one symbol,
 * `tsr_plugin_query`. C++ plugins normally include <tessera/plugin.hpp>, the header-only wrapper over this file.
 *
 * Rules that hold for everything below
 *  - Every struct that may grow begins with `struct_size` (bytes, as the writer compiled it). Fields are only appended. A
 *    reader demands the prefix of the first stable version, reads min(struct_size, own size) and takes a missing tail as
 *    zero. Elements of arrays have no struct_size; the array carries its stride instead (TSR_AT).
 *  - Strings are UTF-8, zero-terminated and borrowed for the duration of the call, unless a field says otherwise.
 *  - Functions that can fail return `tsr_error*`: NULL is success. Errors are made by `tsr_host_core.error_create` and
 *    freed by the host, which takes ownership of every error that a callback returns.
 *  - No exception crosses the boundary in either direction.
 *  - Handles (graph, recorder, ...) are valid inside the callback that received them, and no longer.
 *  - Thread-safety: a factory table's functions may be called from several threads at once on different graphs; one
 *    graph is only ever used by one thread at a time. `launch` of one kernel may run concurrently with itself.
 */
#ifndef TESSERA_ABI_H
#define TESSERA_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ABI version. Major: incompatible. Minor: appended fields and functions. 0.x: may still change incompatibly. */
#define TSR_ABI_MAJOR 0
#define TSR_ABI_MINOR 6
/* Version of the graph IR (text form and tables). */
#define TSR_IR_VERSION 1

#if defined(_WIN32)
#define TSR_EXPORT __declspec(dllexport)
#else
#define TSR_EXPORT __attribute__((visibility("default")))
#endif

/* Element `i` of an array whose writer's element size was `stride` bytes. */
#define TSR_AT(type, base, stride, i) ((const type*)((const char*)(base) + (size_t)(stride) * (size_t)(i)))
/* 1 when the struct at `p` is long enough to hold `field` (that is, its writer knew of the field). */
#define TSR_HAS(p, type, field) ((p)->struct_size >= offsetof(type, field) + sizeof((p)->field))

typedef uint32_t tsr_id;     /* index of a node, value or region in its graph's tables; stable during a transaction */
#define TSR_NONE 0xffffffffu /* "no such thing": an omitted optional operand, no parent, end of a list */

/* ---------------------------------------------------------------------------------------------------- data types */

typedef enum tsr_dtype {
  TSR_DTYPE_INVALID = 0,
  TSR_F64,
  TSR_F32,
  TSR_F16,
  TSR_BF16,
  TSR_F8E4M3FN,
  TSR_F8E4M3FNUZ,
  TSR_F8E5M2,
  TSR_F8E5M2FNUZ,
  TSR_F8E8M0,
  TSR_F4E2M1,
  TSR_I2,
  TSR_I4,
  TSR_I8,
  TSR_I16,
  TSR_I32,
  TSR_I64,
  TSR_U2,
  TSR_U4,
  TSR_U8,
  TSR_U16,
  TSR_U32,
  TSR_U64,
  TSR_BOOL,
  TSR_C64,
  TSR_C128,
  TSR_DTYPE_COUNT
} tsr_dtype;
/* Sub-byte types (i2 u2 i4 u4 f4e2m1) are packed, element 0 in the low bits of byte 0; a packed tensor is contiguous. */

/* A size, stride or symbolic attribute: a plain i64, or a handle of an expression interned in the graph (TSR_DIM_IS_EXPR). */
typedef int64_t tsr_dim;
#define TSR_DIM_EXPR_BASE   INT64_MIN
#define TSR_DIM_IS_EXPR(d)  ((d) < INT64_MIN + ((int64_t)1 << 32))
#define TSR_DIM_EXPR_ID(d)  ((uint32_t)((uint64_t)(d) - (uint64_t)INT64_MIN))
#define TSR_DIM_OF_EXPR(id) ((tsr_dim)(INT64_MIN + (int64_t)(id)))

typedef enum tsr_dim_op {
  TSR_DIM_SYMBOL = 0,
  TSR_DIM_ADD,
  TSR_DIM_SUB,
  TSR_DIM_MUL,
  TSR_DIM_FLOORDIV,
  TSR_DIM_MOD,
  TSR_DIM_MIN,
  TSR_DIM_MAX
} tsr_dim_op;

typedef struct tsr_dim_expr { /* element of tsr_tables.exprs; operands have smaller ids than their user */
  uint32_t op;                /* tsr_dim_op */
  uint32_t symbol;            /* index in tsr_tables.symbols when op is TSR_DIM_SYMBOL */
  tsr_dim lhs, rhs;
} tsr_dim_expr;

typedef struct tsr_symbol {
  const char* name;  /* "s0", "u0"; unique in the graph */
  int64_t min, max;  /* inclusive range that every use may rely on */
  int64_t hint;      /* a value seen at capture, or -1 */
  uint32_t unbacked; /* 1: known only once data has been computed */
  uint32_t reserved;
} tsr_symbol;

typedef uint32_t tsr_device; /* process-wide id interned by the host: 0 is "cpu"; tsr_host_core.device_name gives "null:1" */

typedef struct tsr_type {
  uint32_t dtype; /* tsr_dtype */
  uint32_t rank;
  const tsr_dim* sizes;   /* [rank] */
  const tsr_dim* strides; /* [rank], in elements; NULL: dense row-major, or no matter */
  tsr_device device;
  uint32_t reserved;
} tsr_type;

/* A tensor at run time. `data` points at element 0; strides are in elements and never NULL when rank > 0. */
typedef struct tsr_tensor {
  void* data;
  uint32_t dtype;
  uint32_t rank;
  const int64_t* sizes;
  const int64_t* strides;
  tsr_device device;
  uint32_t flags; /* TSR_TENSOR_* */
} tsr_tensor;
#define TSR_TENSOR_CONTIGUOUS 1u /* dense row-major */
#define TSR_TENSOR_ABSENT     2u /* stands for an omitted optional operand; no other field is valid */
/* Of a `constant` to be created: the data, aligned to its element, is never written and lives as long as the graph does
 * (tsr_graph_api.keep), so it is named and not copied. */
#define TSR_TENSOR_KEPT 4u

/* ---------------------------------------------------------------------------------------------------- attributes */

typedef enum tsr_attr_kind {
  TSR_ATTR_NONE = 0,
  TSR_ATTR_INT,     /* i */
  TSR_ATTR_FLOAT,   /* f */
  TSR_ATTR_BOOL,    /* i: 0 or 1 */
  TSR_ATTR_STRING,  /* s */
  TSR_ATTR_DTYPE,   /* i: tsr_dtype */
  TSR_ATTR_DIM,     /* i: a tsr_dim, maybe symbolic */
  TSR_ATTR_INTS,    /* ints[count] */
  TSR_ATTR_FLOATS,  /* floats[count] */
  TSR_ATTR_DIMS,    /* ints[count]: tsr_dims */
  TSR_ATTR_STRINGS, /* strings[count] */
  TSR_ATTR_TENSOR   /* tensor: dense row-major host memory, static shape, owned by the graph */
} tsr_attr_kind;

typedef struct tsr_attr {
  const char* name;
  uint32_t kind; /* tsr_attr_kind */
  uint32_t count;
  int64_t i;
  double f;
  const char* s;
  const int64_t* ints;
  const double* floats;
  const char* const* strings;
  const tsr_tensor* tensor;
} tsr_attr;

/* --------------------------------------------------------------------------------------------------- graph tables */

typedef struct tsr_use {
  tsr_id node;
  uint32_t operand;
} tsr_use; /* node TSR_NONE: a region's output number `operand` */

typedef enum tsr_input_kind {
  TSR_INPUT_NONE = 0,
  TSR_INPUT_ARG,
  TSR_INPUT_PARAM,
  TSR_INPUT_STATE,
  TSR_INPUT_BLOCK
} tsr_input_kind;

typedef struct tsr_value {
  const char* name; /* without '%'; unique in the graph */
  const tsr_type* type;
  tsr_id def_node;     /* TSR_NONE: a region's input */
  uint32_t def_index;  /* result number of def_node, or input number of `region` */
  tsr_id region;       /* where it is defined */
  uint32_t input_kind; /* tsr_input_kind; graph inputs are arg, param or state; inputs of nested regions BLOCK */
  uint32_t writeback;  /* state: the graph output written back into it; else TSR_NONE */
  uint32_t donated;    /* state or arg: its memory may be reused by an output */
  uint32_t num_uses;
  uint32_t alive;
  const char* key; /* graph inputs: the name outside of the graph, such as "layers.0.weight" in the state dict; NULL: `name` */
} tsr_value;

typedef struct tsr_loc {
  const char* file;
  uint32_t line, column;
} tsr_loc; /* file NULL: unknown */

typedef struct tsr_node {
  const char* op;    /* "add", "acme.relu6"; interned: equal names have equal pointers within one graph */
  uint32_t op_index; /* dense per context; for switch tables see tsr_graph_api.op_index */
  uint32_t alive;
  const tsr_id* operands; /* value ids; TSR_NONE for an omitted optional operand */
  uint32_t num_operands;
  uint32_t num_results;
  const tsr_id* results;
  const tsr_attr* attrs; /* sorted by name; defaults are filled in */
  uint32_t num_attrs;
  uint32_t num_regions;
  const tsr_id* regions;
  tsr_id parent;     /* region that holds it */
  tsr_id prev, next; /* program order inside the region */
  tsr_loc loc;
  const char* author; /* who created or last edited it: "capture", "text", a pass */
  /* ---- appended in ABI 0.3 */
  uint32_t marks; /* TSR_MARK_* */
  uint32_t reserved;
} tsr_node;
/* Marks of nodes. What a rewrite rule or a decomposition makes has the marks of the node that it replaces; a pass that copies
 * nodes in another way copies their marks (tsr_graph_api.set_marks). */
#define TSR_MARK_BACKWARD   1u /* belongs to the backward half: made by the autograd stage, or for it */
#define TSR_MARK_RECOMPUTED 2u /* computes a value of the forward half again: never merged with a node without this mark */
#define TSR_MARK_CHECKPOINT 4u /* the program wants it computed again in the backward half, not kept */
#define TSR_MARK_SAVE       8u /* the program wants its results kept for the backward half */
#define TSR_MARK_ALL        15u

typedef struct tsr_region {
  tsr_id parent_node; /* TSR_NONE: the graph's body, which is region 0 */
  tsr_id first, last; /* nodes, linked by tsr_node.next */
  const tsr_id* inputs;
  uint32_t num_inputs;
  uint32_t num_outputs;
  const tsr_id* outputs;
  uint32_t alive;
  uint32_t reserved;
} tsr_region;

/* A live view: the struct stays where it is while the graph lives, the pointers in it change with every edit. */
typedef struct tsr_tables {
  size_t struct_size;
  const char* name;
  const tsr_node* nodes;
  size_t num_nodes, node_stride;
  const tsr_value* values;
  size_t num_values, value_stride;
  const tsr_region* regions;
  size_t num_regions, region_stride;
  const tsr_symbol* symbols;
  size_t num_symbols, symbol_stride;
  const tsr_dim_expr* exprs;
  size_t num_exprs, expr_stride;
  /* ---- appended since the first version of this struct */
  /* [regions[0].num_outputs]: the names of the graph's outputs outside of it. They belong to the signature: no edit of the
   * values changes them. An entry that is NULL: the output is called as its value is at present. NULL: all of them are. */
  const char* const* output_names;
} tsr_tables;

typedef struct tsr_graph tsr_graph;

/* ------------------------------------------------------------------------------------------------- errors, host core */

typedef struct tsr_error tsr_error;
typedef enum tsr_family {
  TSR_USER = 1,        /* the caller's mistake: a bad file, option, shape */
  TSR_ENVIRONMENT = 2, /* the machine's fault at run time: out of memory, missing library, I/O */
  TSR_BUG = 3          /* ours, or the plugin's: the host adds the plugin's id and vendor */
} tsr_family;

typedef struct tsr_host_core {
  size_t struct_size;
  /* code "TSR-B001"; message: place, found, expected; hint: what to do (may be NULL). All strings are copied. */
  tsr_error* (*error_create)(uint32_t family, const char* code, const char* message, const char* hint);
  const char* (*error_code)(const tsr_error*);
  const char* (*error_message)(const tsr_error*);
  const char* (*error_hint)(const tsr_error*);
  uint32_t (*error_family)(const tsr_error*);
  void (*error_free)(tsr_error*);

  /* Logging artifacts ("output_code", "fusion", ...). `log_enabled` is cheap; ask before formatting. level: 0 normal, 1
   * verbose. */
  int (*log_enabled)(const char* artifact, int level);
  void (*log_write)(const char* artifact, int level, const char* text);

  /* Runs fn(ctx, begin, end) over disjoint ranges that cover [0, n), each of at least `grain` items but the last; returns when
   * all are done. The split never affects results that obey the numerics rules. Nested calls run serially. fn must not
   * throw. */
  void (*parallel)(int64_t n, int64_t grain, void (*fn)(void* ctx, int64_t begin, int64_t end), void* ctx);
  int (*num_threads)(void);

  tsr_device (*device_id)(const char* name); /* interns */
  const char* (*device_name)(tsr_device);    /* lives as long as the process */
  uint32_t (*op_index)(const char* op);      /* interns; equals tsr_node.op_index of that op */
  /* ---- appended since the first version of this table */
  /* Calls the host function that tsr_capture_api.host_function has registered, for ops that stand for one. */
  struct tsr_error* (*host_call)(int64_t function, const struct tsr_tensor* inputs, uint32_t num_inputs,
                                 const struct tsr_tensor* outputs, uint32_t num_outputs);
  /* ---- appended in ABI 0.3 */
  /* The table that serves a device, its `self` and the device's number in it: for executors. NULL: the host's own memory, or a
   * device that no loaded plugin provides. Lives as long as the process. */
  const struct tsr_device_table* (*device_table)(tsr_device, void** self, uint32_t* index);
  /* ---- appended in ABI 0.4 */
  /* Tells whoever waits how far work of seconds is: `done` of `total` units of `what`, a phrase such as "measuring schedules".
   * done == total: it has ended. From any thread; `what` is copied. One pointer is read when nobody listens, so that a loop may
   * call it each time round. */
  void (*progress)(const char* what, uint64_t done, uint64_t total);
} tsr_host_core;

/* ------------------------------------------------------------------------------------------- reading, editing, building */

typedef struct tsr_node_desc { /* what to create; types may be NULL: then they are inferred from the op's record */
  size_t struct_size;
  const char* op;
  const tsr_id* operands;
  uint32_t num_operands;
  uint32_t num_attrs;
  const tsr_attr* attrs; /* any order; copied, tensors included; defaults are filled in by the host */
  const tsr_id* regions;
  uint32_t num_regions; /* made by region_create, not yet owned by a node */
  uint32_t num_results; /* only read when result_types is given */
  const tsr_type* const* result_types;
  tsr_loc loc;
  const char* result_name; /* hint for the name of result 0; may be NULL */
  /* ---- appended in ABI 0.3 */
  uint32_t marks; /* TSR_MARK_*, besides those that the host gives by itself */
  uint32_t reserved;
} tsr_node_desc;

typedef enum tsr_relation { TSR_EQ = 0, TSR_NE, TSR_LT, TSR_LE, TSR_GT, TSR_GE, TSR_DIVISIBLE } tsr_relation;
typedef enum tsr_truth { TSR_FALSE = 0, TSR_TRUE = 1, TSR_UNKNOWN = 2 } tsr_truth;

typedef struct tsr_pattern tsr_pattern;

enum { TSR_NEED_RANK = 1, TSR_NEED_VALUE = 2 }; /* of an input whose model is imported */

typedef struct tsr_graph_api {
  size_t struct_size;
  const tsr_tables* (*tables)(const tsr_graph*);
  const char* (*op_traits)(
      const tsr_graph*, const char* op); /* space-separated traits of the record ("pure elementwise ..."), NULL: unknown op */

  /* Uses of a value, in no particular order; valid until the next edit. */
  const tsr_use* (*uses)(const tsr_graph*, tsr_id value, uint32_t* count);

  /* Sizes. Results are simplified and interned; an overflow or a division by zero is an error (TSR-S). */
  tsr_error* (*dim)(tsr_graph*, tsr_dim_op, tsr_dim a, tsr_dim b, tsr_dim* out);
  tsr_truth (*dim_compare)(const tsr_graph*, tsr_relation, tsr_dim a, tsr_dim b); /* for every value in range? */
  /* As dim_compare; when unknown, records the relation as an assumption of the graph (a guard) and succeeds; false is an
   * error. */
  tsr_error* (*dim_require)(tsr_graph*, tsr_relation, tsr_dim a, tsr_dim b, const char* why);
  tsr_dim (*symbol_create)(tsr_graph*, const char* prefix, int64_t min, int64_t max, int unbacked);
  /* Memory that lives until the graph's transaction, inference or import ends; 16-byte aligned; never NULL (see TSR-E). */
  void* (*scratch)(tsr_graph*, size_t bytes);

  /* Edits: only inside a pass run, a rewrite callback, a decompose or grad callback, or an import. */
  tsr_error* (*node_create)(tsr_graph*, const tsr_node_desc*, tsr_id region, tsr_id before /* TSR_NONE: at the end */,
                            tsr_id* node);
  tsr_error* (*node_erase)(tsr_graph*, tsr_id node);               /* its results must be unused */
  tsr_error* (*node_move)(tsr_graph*, tsr_id node, tsr_id before); /* within its region */
  tsr_error* (*set_operand)(tsr_graph*, tsr_id node, uint32_t index, tsr_id value);
  tsr_error* (*set_attr)(tsr_graph*, tsr_id node, const tsr_attr*);
  tsr_error* (*replace_uses)(tsr_graph*, tsr_id old_value, tsr_id new_value); /* types must agree */
  tsr_error* (*set_type)(tsr_graph*, tsr_id value, const tsr_type*);
  tsr_error* (*set_name)(tsr_graph*, tsr_id value, const char* name); /* made unique by a suffix */

  /* Regions and the graph's own signature. region_create makes a free region; its inputs have the given types. */
  tsr_error* (*region_create)(tsr_graph*, const tsr_type* const* input_types, uint32_t num_inputs, tsr_id* region);
  tsr_error* (*region_set_outputs)(tsr_graph*, tsr_id region, const tsr_id* values, uint32_t count);
  tsr_error* (*input_create)(tsr_graph*, const char* name, const tsr_type*, uint32_t input_kind, const char* key,
                             tsr_id* value);
  tsr_error* (*input_set_state)(tsr_graph*, tsr_id value, uint32_t writeback_output, int donated);

  /* Inlines `node`'s record decomposition (text or callback) before it, replaces its uses and erases it. */
  tsr_error* (*decompose)(tsr_graph*, tsr_id node);
  /* Runs the worklist driver to a fixed point over live nodes; *changed is 1 if any pattern fired. */
  tsr_error* (*rewrite)(tsr_graph*, const tsr_pattern* patterns, size_t count, size_t stride, int* changed);
  /* Computes the results of a pure node with constant operands on the fallback backend. out[i] lives in scratch memory. */
  tsr_error* (*evaluate)(tsr_graph*, tsr_id node, tsr_tensor* out, uint32_t num_out);
  /* Prints the graph, or one node, in text form into scratch memory. */
  const char* (*print)(tsr_graph*, tsr_id node /* TSR_NONE: whole graph */);
  /* The remaining pipeline stages without code generation: predicted peak bytes and seconds of one run. */
  tsr_error* (*estimate)(tsr_graph*, int64_t* peak_bytes, double* seconds);
  /* Parses text IR (graph bodies of records or whole graphs) into this empty graph: frontends. `file` is for messages. */
  tsr_error* (*parse)(tsr_graph*, const char* text, size_t length, const char* file);

  /* ---- appended since the first version of this table */
  /* release(ctx) is called once neither the graph, nor what was cloned or compiled from it, can refer to what ctx stands for:
   * the memory behind constants that were made with TSR_TENSOR_KEPT. On an error it has been called already. */
  tsr_error* (*keep)(tsr_graph*, void (*release)(void* ctx), void* ctx);
  /* During an import: the value that the caller fixed for the input of this name (tsr_api.graph_load_bound), which then becomes
   * a constant; NULL: none. Dense host memory, valid while the import lasts. */
  const tsr_tensor* (*bound_input)(tsr_graph*, const char* name);
  /* The name of the backend that runs this node: the first of those in use that claims it; lives as long as the process.
   * NULL: none does, or the host runs it. `capabilities` (may be NULL) gets its TSR_CAP_*. */
  const char* (*backend_of)(tsr_graph*, tsr_id node, uint64_t* capabilities);
  /* Says that the `length` bytes at `data`, which constants made with TSR_TENSOR_KEPT name, are those at `offset` of the
   * regular file behind `fd`: mapped from it, or read through `fd` after this call. A cache may then recognise them by the
   * file, which it looks at again, instead of reading them. The host keeps a descriptor of its own; what it cannot use it
   * ignores. */
  tsr_error* (*constant_source)(tsr_graph*, const void* data, size_t length, int fd, uint64_t offset);
  /* The names of the graph's outputs outside of it (tsr_tables.output_names), one for each: any text but "". NULL: as its
   * value. Two outputs cannot have one name. region_set_outputs keeps the names of outputs by their numbers. */
  tsr_error* (*outputs_set_names)(tsr_graph*, const char* const* names, uint32_t count);
  /* During an import, before it fails: what it has to know of the call that the model is imported for. A caller that has one
   * imports again, with that fixed: see tsr_api.graph_load_for. */
  void (*need_input)(tsr_graph*, const char* name, uint32_t what); /* TSR_NEED_RANK, TSR_NEED_VALUE */
  void (*need_size)(tsr_graph*, tsr_dim size);                     /* the value of each symbol in it */
  /* What the caller has fixed of the type of the input of this name: its rank and some sizes. A negative size is open: a
   * symbol. -1 says no more; -2 - n that it is n in the call, by which the frontend may decide what depends on it (a branch),
   * if it requires the relation that it goes by (dim_require). NULL: nothing. */
  const tsr_type* (*bound_type)(tsr_graph*, const char* name);
  /* How many assumptions dim_require and inference have recorded; and to forget those after the first `count`, once the nodes
   * that were made since are erased. */
  size_t (*assumptions)(const tsr_graph*);
  void (*forget_assumptions)(tsr_graph*, size_t count);
  /* ---- appended in ABI 0.3 */
  tsr_error* (*set_marks)(tsr_graph*, tsr_id node, uint32_t marks); /* all of them, TSR_MARK_* */
} tsr_graph_api;

/* One rewrite rule. `op` NULL: any op. Return 1 in *changed when the graph was edited. Rules with greater benefit go first. */
struct tsr_pattern {
  const char* name; /* for logs: "add-zero" */
  const char* op;
  uint32_t benefit;
  uint32_t reserved;
  void* self;
  tsr_error* (*apply)(void* self, tsr_graph*, tsr_id node, int* changed);
};

/* --------------------------------------------------------------------------------------------------- handshake */

typedef struct tsr_capture_api tsr_capture_api;

typedef struct tsr_host { /* what a plugin may call; lives as long as the process */
  size_t struct_size;
  uint32_t abi_major, abi_minor, ir_version, reserved;
  const char* version;   /* Tessera's, "0.1.0" */
  const char* sanitizer; /* "", "address", "thread" */
  const tsr_host_core* core;
  const tsr_graph_api* graph;
  const tsr_capture_api* capture;
} tsr_host;
typedef tsr_host tsr_host_info;

typedef struct tsr_option { /* a validated option of the plugin, defaults filled in */
  const char* name;
  uint32_t kind; /* TSR_ATTR_INT, _FLOAT, _BOOL, _STRING or _STRINGS */
  uint32_t count;
  int64_t i;
  double f;
  const char* s;
  const char* const* strings;
} tsr_option;
typedef struct tsr_options {
  size_t struct_size;
  const tsr_option* items;
  size_t count, stride;
} tsr_options;

typedef enum tsr_kind {
  TSR_OPSET = 1,
  TSR_FRONTEND,
  TSR_PASS,
  TSR_PARTITIONER,
  TSR_DEVICE,
  TSR_BACKEND,
  TSR_EXECUTOR,
  TSR_STORE
} tsr_kind;

typedef struct tsr_factory {
  uint32_t kind; /* tsr_kind */
  uint32_t reserved;
  const char* name;  /* "eager", "cse"; unique per kind; listed in the manifest as "backend:eager" */
  const void* table; /* const tsr_backend*, const tsr_pass*, ... by kind; lives as long as the instance */
  void* self;        /* first argument of every function of the table */
} tsr_factory;

typedef struct tsr_plugin_desc {
  size_t struct_size;
  uint32_t abi_major, abi_minor; /* it was built against */
  uint32_t abi_minor_min;        /* oldest host it runs on */
  uint32_t ir_min, ir_max;
  uint32_t reserved;
  const char* id; /* "tessera.backend.eager" */
  const char* version;
  const char* vendor;
  const char* sanitizer;  /* must equal the host's */
  const char* build_info; /* compiler, flags, commit: free text; part of cache keys */
  const char* const* features_needed;
  size_t num_features_needed; /* features of the host; unknown: refused */
  const char* const* features_provided;
  size_t num_features_provided;
  tsr_error* (*create)(const tsr_host*, const tsr_options*, void** instance);
  tsr_error* (*factories)(void* instance, const tsr_factory** items, size_t* count, size_t* stride);
  void (*destroy)(void* instance); /* the library itself is never unloaded */
} tsr_plugin_desc;

/* The one exported symbol. Cheap, no side effects; the desc is static. NULL: the plugin cannot describe itself to this host. */
TSR_EXPORT const tsr_plugin_desc* tsr_plugin_query(const tsr_host_info* host);
typedef const tsr_plugin_desc* (*tsr_plugin_query_fn)(const tsr_host_info* host);

/* --------------------------------------------------------------------------------------------------- kind: opset */

typedef struct tsr_signature { /* of a nested region */
  const tsr_type* const* inputs;
  uint32_t num_inputs;
  uint32_t num_outputs;
  const tsr_type* const* outputs;
} tsr_signature;

typedef struct tsr_call { /* an op applied to operands; not necessarily a node yet */
  size_t struct_size;
  tsr_graph* graph; /* sizes are interned in it; NULL at run time (all sizes are numbers then) */
  const char* op;
  const tsr_type* const* operands; /* NULL entry: omitted optional operand */
  uint32_t num_operands;
  uint32_t num_attrs;
  const tsr_attr* attrs; /* sorted by name, defaults filled in; at run time DIM and DIMS are plain numbers */
  const tsr_signature* regions;
  uint32_t num_regions;
} tsr_call;

typedef struct tsr_cost {
  size_t struct_size;
  double flops, bytes_read, bytes_written;
} tsr_cost;

/* What tsr_op_impl.view returns. While sizes are symbolic only ALWAYS makes a node a view: those that it is asked about then
 * are not those of a call. */
#define TSR_VIEW_NO     0 /* this instance needs a copy */
#define TSR_VIEW_YES    1 /* it is a view of this operand, with these sizes */
#define TSR_VIEW_ALWAYS 2 /* and of every dense operand, whatever the sizes and the attributes that are sizes */

/* C++ escape hatches of an op record; each may be NULL. */
typedef struct tsr_op_impl {
  const char* op;
  void* self;
  /* Types of the results, from record-checked operands: sizes arrays from scratch(). Sets *num_results (at most capacity). */
  tsr_error* (*infer)(void* self, const tsr_call*, tsr_type* results, uint32_t capacity, uint32_t* num_results);
  /* Is result 0 a strided view of operand 0? Fills out->data and the strides (out->strides points at writable int64_t[rank],
   * sizes are given) and returns TSR_VIEW_*. Asked when a graph is compiled and at run time; no allocation. */
  int (*view)(void* self, const tsr_call*, const tsr_tensor* in, tsr_tensor* out, int64_t* out_strides);
  /* Host-memory kernel, any strides on inputs, contiguous outputs. Of an op that is `pure`: the same bits on every run. */
  tsr_error* (*compute)(void* self, const tsr_call*, const tsr_tensor* inputs, uint32_t num_inputs, const tsr_tensor* outputs,
                        uint32_t num_outputs);
  /* Data-dependent results: computes the unbacked symbols of the results, in order of first appearance. */
  tsr_error* (*compute_sizes)(void* self, const tsr_call*, const tsr_tensor* inputs, uint32_t num_inputs, int64_t* symbols,
                              uint32_t num_symbols);
  /* Builds the replacement before `node` and writes the new value of each result. */
  tsr_error* (*decompose)(void* self, tsr_graph*, tsr_id node, tsr_id* replacements);
  /* Gradient: builds nodes at the end of node's region; grad_results may hold TSR_NONE (zero); writes TSR_NONE for "no
   * gradient". */
  tsr_error* (*grad)(void* self, tsr_graph*, tsr_id node, const tsr_id* grad_results, tsr_id* grad_operands);
  tsr_error* (*cost)(void* self, const tsr_call*, tsr_cost*);
} tsr_op_impl;

typedef struct tsr_record_file {
  const char* name;
  const char* text;
} tsr_record_file; /* name is for messages */

typedef struct tsr_opset {
  size_t struct_size;
  const char* prefix; /* "" for the standard set, "acme" for ops called "acme.NAME" */
  const tsr_record_file* files;
  size_t num_files, file_stride;
  const tsr_op_impl* impls;
  size_t num_impls, impl_stride;
} tsr_opset;

/* --------------------------------------------------------------------------------------------------- kind: frontend */

/* A graph under construction by executing host code. The host owns the recorder; values are ids of its graph. */
typedef struct tsr_recorder tsr_recorder;

/* What a number among the arguments (TSR_ARG_SYM_INT, TSR_ARG_SYM_FLOAT) is in this capture. */
typedef enum tsr_scalar_kind {
  TSR_SCALAR_NUMBER = 0, /* the number of this call: using it makes its value a guard */
  TSR_SCALAR_INPUT,      /* of a float: `value`, f64[] */
  TSR_SCALAR_DIM         /* of an integer: `dim`, a symbol; as a tensor: op dim_value */
} tsr_scalar_kind;
typedef struct tsr_scalar {
  size_t struct_size;
  uint32_t kind; /* tsr_scalar_kind */
  tsr_id value;
  tsr_dim dim;
} tsr_scalar;
struct tsr_tensor_handle; /* embed.h */

typedef enum tsr_read_kind {
  TSR_READ_NONE = 0,
  TSR_READ_BOOL,   /* of a tensor of one element, converted: i */
  TSR_READ_INT,    /* i */
  TSR_READ_FLOAT,  /* f */
  TSR_READ_TENSOR, /* all elements: tensor */
  TSR_READ_MEMORY  /* the same, and host code may write them: it runs at every call from here on */
} tsr_read_kind;

/* Host code that runs at every call between two segments, on tensors that exist. */
typedef struct tsr_host_step {
  size_t struct_size;
  void* self;
  /* results: new references. *key: whatever else of the outcome later host code can see; bytes of the callee, valid until its
   * next call on this thread. Thread-safe, as the calls of the compiled function are. */
  tsr_error* (*run)(void* self, struct tsr_tensor_handle* const* inputs, uint32_t num_inputs,
                    struct tsr_tensor_handle** results, uint32_t capacity, uint32_t* num_results, const void** key,
                    size_t* key_length, void** outcome);
  void (*outcome_free)(void* outcome); /* of what `run` returned: the client's own record of what came out */
  void (*destroy)(void* self);         /* the host owns the step from graph_break on, whether that succeeds or not */
} tsr_host_step;

/* A graph break: host code needs what only running the graph gives. */
typedef struct tsr_break {
  size_t struct_size;
  uint32_t code;      /* of docs/graph_breaks.md: 10 is TSR-G010 */
  uint32_t read_kind; /* tsr_read_kind */
  tsr_loc loc;        /* of the host code that breaks the graph */
  const char* detail; /* what stands there: "item<float>() of f32[]"; may be NULL */
  tsr_id read;        /* the value that is read; TSR_NONE: none */
  uint32_t num_live;
  const tsr_id* live; /* every value that host code can still reach, each once */
  tsr_id* rebound;    /* out [num_live]: the same values as inputs of the next graph */
  int64_t i;          /* out: what was read */
  double f;
  struct tsr_tensor_handle* tensor; /* out: a new reference */
  const tsr_host_step* step;        /* runs after the segment; NULL: none */
  const tsr_id* step_inputs;        /* among `live` */
  uint32_t num_step_inputs;
  uint32_t step_capacity;
  tsr_id* step_results; /* out: its results as inputs of the next graph */
  uint32_t num_step_results;
  uint32_t forbidden; /* 1: an error, as under fullgraph */
  void* outcome;      /* out: of the step, borrowed until the capture ends */
} tsr_break;

struct tsr_capture_api {
  size_t struct_size;
  tsr_graph* (*graph)(tsr_recorder*);
  tsr_error* (*op)(tsr_recorder*, const tsr_node_desc*, tsr_id* results, uint32_t capacity, uint32_t* num_results);
  uint32_t (*num_inputs)(tsr_recorder*);
  tsr_id (*input)(tsr_recorder*, uint32_t index);
  tsr_error* (*set_outputs)(tsr_recorder*, const tsr_id* values, uint32_t count);
  /* Says that host code has looked at the type of `value`. A client that calls it once with TSR_NONE, before the function runs,
   * promises to report every such look; then inputs that are neither looked at nor used by the graph are not guarded. Without
   * that promise every input is guarded. */
  void (*observe)(tsr_recorder*, tsr_id value);
  /* ---- appended since the first version of this table */
  /* `arg` is the number of the leaf among all arguments. */
  tsr_error* (*scalar)(tsr_recorder*, uint32_t arg, tsr_scalar* out);
  /* Says that the function has used the number. `as_number`: host code has read its value, which becomes a guard whatever the
   * kind is. `where`: "model.cpp:12", may be NULL. Without the promise above every number counts as read. */
  void (*scalar_used)(tsr_recorder*, uint32_t arg, int as_number, const char* where);
  /* Ends the segment: the graph so far is compiled and run, and recording goes on in an empty graph behind the same handle,
   * whose inputs are the values that are still live. Ids of the graph before mean nothing afterwards; handles of sizes keep
   * their meaning. An error (fullgraph, a kernel that fails) leaves the recorder as it was. */
  tsr_error* (*graph_break)(tsr_recorder*, tsr_break*);
  /* Makes a function of the client known to the graph that is being recorded: a number for an attribute of an op whose kernel
   * calls tsr_host_core.host_call. The graph and its copies keep it. `call` gets host memory, inputs of any strides, and writes
   * outputs, which are row-major; it may run on any thread. */
  tsr_error* (*host_function)(tsr_recorder*, void* self,
                              tsr_error* (*call)(void* self, const tsr_tensor* inputs, uint32_t num_inputs,
                                                 const tsr_tensor* outputs, uint32_t num_outputs),
                              void (*destroy)(void* self), int64_t* function);
  /* Whether the backends of the capture take the node that was recorded last: whole, decomposed, or by a kernel of the op
   * set's. 0: nobody does, and the node is gone again. The client then ends the segment where it stood (graph_break, code 14)
   * with a host step that runs the op itself. */
  tsr_error* (*taken)(tsr_recorder*, tsr_id node, int* taken);
};

typedef struct tsr_callable { /* the user's function, as its language's client hands it over */
  size_t struct_size;
  void* self;
  const char* name;
  tsr_loc loc;
  /* Runs the function once over the recorder's inputs; the client records ops through tsr_capture_api while it runs. */
  tsr_error* (*invoke)(void* self, tsr_recorder*);
} tsr_callable;

typedef struct tsr_frontend {
  size_t struct_size;
  const char* const* extensions;
  size_t num_extensions; /* ".tsr"; empty for capture-only frontends */
  const char* description;
  /* 0: not mine; 100: certain. `head` holds the first bytes of the file. NULL: go by extension. */
  int (*probe)(void* self, const char* head, size_t length);
  /* Fills the empty graph. `path` is for messages and for data beside the file; bytes are borrowed. NULL: cannot import. */
  tsr_error* (*import)(void* self, const char* bytes, size_t length, const char* path, tsr_graph*);
  /* Turns a callable into a graph by driving the recorder. NULL: cannot capture. */
  tsr_error* (*capture)(void* self, tsr_recorder*, const tsr_callable*);
} tsr_frontend;

/* --------------------------------------------------------------------------------------------------- kind: pass */

typedef struct tsr_pass {
  size_t struct_size;
  const char* summary; /* one sentence: what it does */
  const char* ensures; /* one sentence: what later passes may assume */
  tsr_error* (*run)(void* self, tsr_graph*, const tsr_options*, int* changed);
  uint32_t stage; /* TSR_STAGE_*: when the config's pipeline runs it */
  uint32_t reserved;
} tsr_pass;
#define TSR_STAGE_GRAPH    0u /* in its place in the pipeline */
#define TSR_STAGE_CALL     2u /* before the others, wherever it stands: may use the sizes of the call (tsr_symbol.hint) */
#define TSR_STAGE_ASSIGNED 1u /* after the others, when every node has a backend and refused composites are decomposed */

/* --------------------------------------------------------------------------------------------------- kind: device */

typedef struct tsr_device_info {
  size_t struct_size;
  const char* name; /* "null:0", "cuda:0" */
  const char* description;
  uint32_t host_accessible; /* 1: the host may read and write its memory directly */
  uint32_t reserved;
  int64_t total_bytes, free_bytes; /* 0: unknown */
  /* ---- appended in ABI 0.2. Strings may be NULL and numbers 0 where they are unknown. */
  const char* architecture;   /* what kernels are compiled for: "sm_90", "gfx942"; part of cache keys */
  const char* driver_version; /* of the driver and its runtime library; part of cache keys */
  uint32_t units;             /* multiprocessors or compute units */
  uint32_t wave;              /* lanes that execute together: 32 or 64 */
  uint32_t max_threads;       /* of one block */
  uint32_t reserved2;
  int64_t shared_bytes;    /* shared memory that one block may use */
  int64_t register_bytes;  /* register file of one unit */
  int64_t cache_bytes;     /* last-level cache */
  double bytes_per_second; /* of its memory, both directions together */
  double flops_per_second; /* multiplications and additions in f32 */
} tsr_device_info;

typedef struct tsr_stream tsr_stream;
typedef struct tsr_event tsr_event;
typedef struct tsr_device_graph tsr_device_graph;

/* One piece of work as data: what a kernel's launch queues, and a node of a device graph. */
typedef enum tsr_call_kind {
  TSR_CALL_KERNEL = 0, /* one launch of a function */
  TSR_CALL_COPY,       /* within the device */
  TSR_CALL_FILL,
  TSR_CALL_EMPTY /* joins what it comes behind */
} tsr_call_kind;

/* Where an argument of a call comes from, so that whoever keeps the call can set the argument anew when a tensor has moved or a
 * size has changed. */
typedef enum tsr_argument_kind {
  TSR_ARGUMENT_FIXED = 0, /* its bytes stay as they are, unless tsr_device_call.by_dims */
  TSR_ARGUMENT_INPUT,     /* address: data of input `number` of the launch, plus `displacement` */
  TSR_ARGUMENT_OUTPUT,    /* address: data of output `number`, plus `displacement` */
  TSR_ARGUMENT_WORKSPACE, /* address: the workspace, plus `displacement` */
  TSR_ARGUMENT_DIM,       /* an i64: slot `number` of dims, plus `displacement` */
  TSR_ARGUMENT_FAULT,     /* tsr_launch.fault */
  TSR_ARGUMENT_SITE       /* tsr_launch.site */
} tsr_argument_kind;
typedef struct tsr_argument {
  uint32_t kind; /* tsr_argument_kind */
  uint32_t number;
  uint32_t offset; /* bytes from the beginning of tsr_device_call.arguments */
  uint32_t bytes;
  int64_t displacement;
} tsr_argument;

typedef struct tsr_device_call {
  size_t struct_size;
  uint32_t kind; /* tsr_call_kind */
  uint32_t
      by_dims; /* 1: when dims change, other things than TSR_ARGUMENT_DIM may change with them: describe the launch again */
  const char* name; /* for messages and profiles; lives as long as the kernel */
  /* ---- TSR_CALL_KERNEL */
  void* function;                         /* as the device knows it: CUfunction, hipFunction_t */
  uint32_t grid[3], block[3], cluster[3]; /* cluster: zeros where there is none */
  uint32_t shared_bytes;                  /* of a block, that the launch has to give */
  const void* arguments;                  /* the bytes of all arguments, each at its offset */
  size_t argument_bytes;
  const tsr_argument* layout; /* in the order of the function's parameters */
  size_t num_arguments, argument_stride;
  /* ---- TSR_CALL_COPY and TSR_CALL_FILL */
  void* to;
  const void* from;
  size_t bytes;
  uint32_t value; /* of every byte */
  uint32_t reserved;
} tsr_device_call;

typedef struct tsr_device_graph_info {
  size_t struct_size;
  uint64_t nodes;     /* what the device counts as nodes, those of captured work included */
  int64_t bytes;      /* of device memory that the graph takes beside what its nodes point to; -1: unknown */
  double seconds;     /* that instantiating took on the host */
  uint64_t set_nodes; /* how often graph_set and graph_set_captured have changed a node */
} tsr_device_graph_info;

/* Memory, streams and events of one kind of device. `index` is the number behind the colon; a stream or an event that is passed
 * with an index belongs to that device, but for the event of event_wait. All functions are thread-safe. The host never passes a
 * null stream.
 *
 * Work on one stream runs in the order in which it was queued, work on different streams in any order that events allow. A call
 * that queues work returns before the work is done. An error of work that was queued earlier is reported by the next
 * stream_synchronize, event_synchronize or blocking copy; kernels report through tsr_launch.fault. */
typedef struct tsr_device_table {
  size_t struct_size;
  const char* name; /* "null" */
  uint32_t count;
  uint32_t reserved;
  tsr_error* (*info)(void* self, uint32_t index, tsr_device_info*);
  /* Memory for work that is queued on `stream` from now on. Out of memory: an error with code TSR-R001. */
  tsr_error* (*alloc)(void* self, uint32_t index, size_t bytes, size_t align, tsr_stream*, void** out);
  /* Gives memory back behind the work that is queued on `stream`. */
  void (*free)(void* self, uint32_t index, void* p, tsr_stream*);
  /* Copies between this device and the host, or within the device, in stream order. Unless `flags` holds TSR_COPY_ASYNC, host
   * memory is free to change when the call returns: a source has been read, a destination written. */
  tsr_error* (*copy)(void* self, uint32_t index, void* dst, const void* src, size_t bytes, uint32_t flags, tsr_stream*);
  /* Sets every byte to `value`, in stream order. */
  tsr_error* (*fill)(void* self, uint32_t index, void* dst, uint32_t value, size_t bytes, tsr_stream*);
  tsr_error* (*stream_create)(void* self, uint32_t index, tsr_stream**);
  void (*stream_destroy)(void* self, uint32_t index, tsr_stream*); /* nothing is queued on it any more */
  tsr_error* (*stream_synchronize)(void* self, uint32_t index, tsr_stream*);
  tsr_error* (*event_create)(void* self, uint32_t index, tsr_event**);
  void (*event_destroy)(void* self, uint32_t index, tsr_event*); /* waits that were queued stay as they are */
  tsr_error* (*event_record)(void* self, uint32_t index, tsr_event*, tsr_stream*);
  /* Work queued on `stream`, a stream of device `index`, from now on waits for what the event stands for at the time of this
   * call; recording it again changes nothing for this stream. The event may be one of another device of this table. Never
   * recorded: no wait. */
  tsr_error* (*event_wait)(void* self, uint32_t index, tsr_event*, tsr_stream*);
  tsr_error* (*event_query)(void* self, uint32_t index, tsr_event*, int* done);
  tsr_error* (*event_synchronize)(void* self, uint32_t index, tsr_event*);
  /* Both events were recorded and have passed. */
  tsr_error* (*event_elapsed)(void* self, uint32_t index, tsr_event* from, tsr_event* to, double* seconds);
  /* Host memory that the device reads and writes at the same address, and copies without a detour. */
  tsr_error* (*host_alloc)(void* self, uint32_t index, size_t bytes, void** out);
  void (*host_free)(void* self, uint32_t index, void* p);
  /* ---- optional: NULL where the device has no such thing */
  /* Copies between two tensors of this device with equal dtypes and sizes and any strides, in stream order. */
  tsr_error* (*copy_strided)(void* self, uint32_t index, const tsr_tensor* dst, const tsr_tensor* src, tsr_stream*);
  /* Copies from device `from` of this table to device `index`, in the order of a stream of device `index`. */
  tsr_error* (*copy_peer)(void* self, uint32_t index, void* dst, uint32_t from, const void* src, size_t bytes, tsr_stream*);
  /* A stream that another library made, and what other libraries know a stream by (cudaStream_t). stream_destroy leaves such a
   * stream alive. */
  tsr_error* (*stream_wrap)(void* self, uint32_t index, void* native, tsr_stream**);
  void* (*stream_native)(void* self, uint32_t index, tsr_stream*);
  /* Whether somebody is recording this stream into a graph: it must not be synchronised then, and its events not be queried. */
  tsr_error* (*stream_capturing)(void* self, uint32_t index, tsr_stream*, int* capturing);
  /* Graph capture. */
  tsr_error* (*capture_begin)(void* self, uint32_t index, tsr_stream*);
  tsr_error* (*capture_end)(void* self, uint32_t index, tsr_stream*, tsr_device_graph**);
  tsr_error* (*graph_launch)(void* self, uint32_t index, tsr_device_graph*, tsr_stream*);
  void (*graph_destroy)(void* self, uint32_t index, tsr_device_graph*);
  /* ---- appended in ABI 0.3. Graphs that are built from nodes: all of them from graph_create to graph_info, or none.
   *
   * Nodes are numbered from 0 in the order in which they are added; each runs behind those in `after`, and in any order with
   * others. A graph is used by one thread at a time. What its nodes point to is the caller's to keep until the graph is
   * destroyed and its last launch has passed. Launches of one graph run one after the other, also on different streams. */
  tsr_error* (*graph_create)(void* self, uint32_t index, tsr_device_graph** out); /* without nodes */
  tsr_error* (*graph_add)(void* self, uint32_t index, tsr_device_graph*, const tsr_device_call*, const uint32_t* after,
                          uint32_t num_after, uint32_t* node);
  /* A node of what `queue` queues on the stream that it is given, for kernels that do not describe their launch. The stream
   * records; nothing runs, and it must not be waited for. */
  tsr_error* (*graph_add_captured)(void* self, uint32_t index, tsr_device_graph*, tsr_error* (*queue)(void* ctx, tsr_stream*),
                                   void* ctx, const uint32_t* after, uint32_t num_after, uint32_t* node);
  /* The graph takes no more nodes, and can be launched. */
  tsr_error* (*graph_instantiate)(void* self, uint32_t index, tsr_device_graph*);
  /* Gives a node of an instantiated graph other parameters, from its next launch on. Arguments, grid, block, shared memory,
   * addresses and byte counts may differ; kind and function must not: then an error with code TSR-R044 leaves the graph as it
   * was. */
  tsr_error* (*graph_set)(void* self, uint32_t index, tsr_device_graph*, uint32_t node, const tsr_device_call*);
  tsr_error* (*graph_set_captured)(void* self, uint32_t index, tsr_device_graph*, uint32_t node,
                                   tsr_error* (*queue)(void* ctx, tsr_stream*), void* ctx);
  tsr_error* (*graph_info)(void* self, uint32_t index, tsr_device_graph*, tsr_device_graph_info* out);
  /* Addresses without memory behind them, and memory behind a part of them, for arenas that grow in place: all three, or none.
   * `commit` makes the first `bytes` bytes usable for work that is queued on `stream` from now on, and keeps what is there; a
   * smaller number than before gives memory back. Out of memory: an error with code TSR-R001. */
  tsr_error* (*reserve)(void* self, uint32_t index, size_t bytes, void** out);
  tsr_error* (*commit)(void* self, uint32_t index, void* reserved, size_t bytes, tsr_stream*);
  void (*unreserve)(void* self, uint32_t index, void* reserved); /* nothing that is queued uses it any more */
} tsr_device_table;
#define TSR_COPY_TO_DEVICE 0u
#define TSR_COPY_TO_HOST   1u
#define TSR_COPY_WITHIN    2u
#define TSR_COPY_DIRECTION 3u   /* mask */
#define TSR_COPY_ASYNC     256u /* host memory stays as it is, and is not looked at, until the stream has passed the copy */

/* What a kernel on a device found wrong with its data. The record lies in memory of host_alloc. The first fault of a stream is
 * written once: whoever exchanges a 0 in `claim` for 1 writes the rest, `code` last. The core reads it when code is not 0, and
 * clears both. */
typedef struct tsr_fault {
  uint32_t code;     /* TSR_FAULT_* */
  uint32_t claim;    /* 1: somebody writes the record, or has written it */
  uint64_t site;     /* tsr_launch.site of the launch */
  int64_t values[2]; /* TSR_FAULT_INDEX: the index and the size that it must stay below; a size of 0: not told */
} tsr_fault;
#define TSR_FAULT_INDEX    1u
#define TSR_FAULT_DIVISION 2u /* an integer divided by zero */
#define TSR_FAULT_OTHER    3u

/* --------------------------------------------------------------------------------------------------- kind: backend */

typedef enum tsr_claim { TSR_CLAIM_NO = 0, TSR_CLAIM_YES = 1, TSR_CLAIM_DECOMPOSE = 2 } tsr_claim;

/* Capabilities of a backend. */
#define TSR_CAP_STRIDED_INPUTS 1ull  /* kernels accept any strides; else the host copies to row-major first */
#define TSR_CAP_FUSION         2ull  /* compiles `fused` regions */
#define TSR_CAP_DETERMINISTIC  4ull  /* the same bits on every run and thread count */
#define TSR_CAP_UNALIGNED      8ull  /* tolerates data aligned to the element only; else 64 bytes */
#define TSR_CAP_NO_COMPUTE     16ull /* results are never computed (null): the host does not read values from it */

typedef struct tsr_launch {
  size_t struct_size;
  const tsr_tensor* inputs;
  uint32_t num_inputs; /* the node's operands; omitted ones are TSR_TENSOR_ABSENT */
  uint32_t num_outputs;
  const tsr_tensor* outputs; /* dense row-major, never alias an input unless stated by `in_place` */
  void* workspace;           /* at least what `workspace` asked for, 64-byte aligned */
  const int64_t* dims;       /* evaluated sizes; slots were given out at compile time. Host memory, valid during the call */
  tsr_stream* stream;        /* of the device that the kernel was compiled for; NULL on the host */
  /* ---- appended in ABI 0.2 */
  /* Where a kernel on a device writes the first thing that is wrong with its data (an index out of range, an integer division
   * by zero) before it goes on with some defined value; NULL on the host, where `launch` returns the error. */
  tsr_fault* fault;
  uint64_t site; /* goes into tsr_fault.site */
} tsr_launch;

typedef struct tsr_kernel {
  size_t struct_size;
  void* self;
  const char* name; /* for step tables and profiles; lives as long as the kernel */
  /* Bytes of workspace for these dims. NULL: none. */
  int64_t (*workspace)(void* self, const int64_t* dims);
  /* Data-dependent results: computes the unbacked symbols (order of first appearance in the result types). NULL: there are
   * none. */
  tsr_error* (*sizes)(void* self, const tsr_launch*, int64_t* symbols, uint32_t count);
  /* Never allocates, reentrant. Outputs are written entirely. */
  tsr_error* (*launch)(void* self, const tsr_launch*);
  /* Bytes for the cache, allocated by `alloc`; NULL: not cacheable. */
  tsr_error* (*serialize)(void* self, void* (*alloc)(void* ctx, size_t), void* ctx);
  void (*destroy)(void* self);
  int32_t in_place; /* -1, or the input whose memory output 0 may take over */
  uint32_t flags;   /* TSR_KERNEL_* */
  /* ---- appended since the first version of this table */
  double pack_seconds; /* the part of compile that went into rearranging constants: reported apart */
  int64_t held_bytes;  /* memory that the kernel keeps for its life, such as rearranged constants: counted with its device's */
  /* Bit i: `launch` never reads the data of inputs[i], a constant that it has in a form of its own; it may be missing (its
   * pointer is then one that must not be followed). */
  uint64_t unread;
  /* ---- appended in ABI 0.3 */
  /* Bit i: `launch` takes inputs[i] in any strides, and aligned to its element alone, whatever the backend's capabilities
   * say. */
  uint64_t strided, unaligned;
  /* Calls `each` for every piece of work that `launch` would queue for the same tsr_launch, in order, each behind the one
   * before; queues nothing. The description lives during the call of `each`, whose error ends it. The launch's stream may be
   * NULL. NULL: the work can only be captured (unless flags has TSR_KERNEL_NO_CAPTURE), as a library's. */
  tsr_error* (*describe)(void* self, const tsr_launch*, tsr_error* (*each)(void* ctx, const tsr_device_call*), void* ctx);
  /* ---- appended in ABI 0.5 */
  /* Bytes of workspace for these dims where every input that `strided` has no bit for is dense row-major; those from 64 on may
   * lie in any way. At most what `workspace` says, which is for any strides. NULL: the same. */
  int64_t (*workspace_of)(void* self, const int64_t* dims, uint64_t strided);
} tsr_kernel;
/* `launch` waits for the device, looks at its memory, or does something else that a graph cannot repeat. */
#define TSR_KERNEL_NO_CAPTURE 1u
#define TSR_KERNEL_POINTWISE  2u /* of elementwise nodes: all that `launch` reads for a point it reads before it writes there */
/* What measuring decides is kept, and decided once: the same choice for the same problem on the same machine, in this and later
 * processes. */
#define TSR_TUNE_ALGORITHMS \
  1u /* max_autotune: which of several ways computes a node; may change last bits where the numerics let it */
#define TSR_TUNE_SCHEDULES 2u /* coordinate_descent_tuning: how a generated kernel is spread over a device; changes no bit */

typedef struct tsr_compile {
  size_t struct_size;
  tsr_graph* graph; /* read only */
  tsr_id node;      /* one node, or a `fused` node whose region is to be compiled */
  tsr_device device;
  uint32_t relaxed; /* 1: numerics = "relaxed" */
  uint32_t reserved;
  /* Slot of `dims` that will hold this size at launch. Numbers get no slot: -1. */
  int32_t (*dim_slot)(void* ctx, tsr_dim);
  void* ctx;
  /* ---- appended since the first version of this struct */
  /* Only during `compile`. The value of a `constant`, rearranged into `bytes` bytes: *data is aligned to 64 bytes, never
   * written again, and lives as long as the kernel. The host makes it with `fill`, which writes all of it, or has it from a
   * cache or another kernel: `form` names the rearrangement with all that it depends on besides the constant and the plugin's
   * build (instruction set, tile sizes, axes). Its time and memory are counted by the host, not in the kernel's pack_seconds
   * and held_bytes. NULL: this host cannot. */
  tsr_error* (*rearranged)(void* ctx, tsr_id constant, const char* form, size_t bytes,
                           tsr_error* (*fill)(void* fill_ctx, void* to), void* fill_ctx, const void** data);
  uint32_t tune;       /* TSR_TUNE_*: what is to be measured on this machine rather than predicted */
  uint32_t unfrozen;   /* 1: freezing = false. Constants are read where they lie, and kernels keep no other form of them */
  double tune_seconds; /* wall-clock time that measuring may take for one plan */
  /* The size itself, or what it is for the hints of its symbols. NULL: unknown. */
  int64_t (*dim_hint)(void* ctx, tsr_dim);
} tsr_compile;

typedef struct tsr_backend {
  size_t struct_size;
  const char* device;    /* "cpu", "null": a device's name */
  uint64_t capabilities; /* TSR_CAP_* */
  /* `why` (static string or scratch memory) explains a refusal. Called for composites before and after decomposition. */
  tsr_claim (*claim)(void* self, tsr_graph*, tsr_id node, const char** why);
  tsr_error* (*compile)(void* self, const tsr_compile*, tsr_kernel* out);
  /* From bytes that `serialize` wrote. NULL: never. */
  tsr_error* (*deserialize)(void* self, const void* bytes, size_t length, tsr_kernel* out);
  /* Predicted seconds of one node. NULL: unknown. */
  double (*cost)(void* self, tsr_graph*, tsr_id node);
  /* ---- appended since the first version of this table */
  /* Told of all that `compile` will be asked for one plan, before it is asked, so that code for several kernels is made at
   * once. `compile` gets the same requests one by one, unless the plan is given up in between. NULL: does not care. */
  tsr_error* (*prepare)(void* self, const tsr_compile* requests, size_t count, size_t stride);
} tsr_backend;

/* --------------------------------------------------------------------------------------- kinds: partitioner, executor,
 * store */

/* What a partitioner may decide of a node (tsr_partition.rules). */
typedef enum tsr_partition_rule {
  TSR_PARTITION_FREE = 0,  /* either way: computing it again costs nothing, and its results are not kept (views, constants) */
  TSR_PARTITION_MAY,       /* its results are kept, or it runs again in the backward half */
  TSR_PARTITION_SAVE,      /* it must not run again: what the backward half needs of it is kept */
  TSR_PARTITION_RECOMPUTE, /* it must run again: nothing of it is kept */
  TSR_PARTITION_BACKWARD   /* it belongs to the backward half */
} tsr_partition_rule;

typedef struct tsr_partition { /* arrays indexed by node id of the joint graph; allocated by the host */
  size_t struct_size;
  int64_t budget_bytes; /* in and out: of memory at the peak, besides what the caller holds; -1: none given */
  /* 0..1: the activations that may be kept, as a part of those that saving all keeps; used when budget_bytes is -1. */
  double budget_fraction;
  /* In and out: 1 when the node runs in that half; both: recomputed. The host has filled them in for saving all. */
  uint8_t* in_forward;
  uint8_t* in_backward;
  size_t num_nodes;
  tsr_id first_backward;    /* first node of the backward half in program order */
  uint32_t feasible;        /* out: 0 when the budget cannot be met; then the smallest plan is given */
  int64_t saved_bytes;      /* out */
  double recompute_seconds; /* out */
  double bound_gap;         /* out: how far from optimal the plan can be, as a part of the step's time; negative: unknown */
  /* ---- appended in ABI 0.3 */
  const uint8_t* rules; /* [num_nodes], tsr_partition_rule; SAVE for nodes outside of the graph's body */
  /* [num_nodes]: predicted time of running the node once more; 0 where the forward half does not need it. */
  const double* seconds;
  /* [num_values], at the hints of symbols: memory that the value takes; 0: none of its own, or it stays anyway. */
  const int64_t* bytes;
  size_t num_values;
  double step_seconds;     /* predicted time of the whole program that saves all */
  double seconds_per_byte; /* predicted time of moving a byte to or from memory */
  /* Lowers the joint graph as in_backward says, fuses, lays out memory, and reads the blocks at the peak and the predicted time
   * of one run from that. Costs a compile without code generation. */
  tsr_error* (*evaluate)(void* host, const uint8_t* in_backward, int64_t* peak_bytes, double* seconds);
  void* host;
  int64_t peak_bytes; /* out: what `evaluate` said of the plan; -1: not asked */
  /* ---- appended in ABI 0.6 */
  /* The same of `count` plans, given by an in_backward each. `at_once` of them are lowered side by side, each by a thread of
   * its own, and take little longer than one. Where lowering one fails, nothing is written, and its error is returned. */
  tsr_error* (*evaluate_all)(void* host, size_t count, const uint8_t* const* in_backward, int64_t* peak_bytes,
                             double* seconds); /* [count] each */
  size_t at_once; /* 1 or more. What is chosen must not depend on it: it is not the same on every machine */
} tsr_partition;

typedef struct tsr_partitioner {
  size_t struct_size;
  const char* summary;
  tsr_error* (*partition)(void* self, tsr_graph* joint, const tsr_options*, tsr_partition*);
  /* ---- appended in ABI 0.3 */
  /* Calls each(ctx, plan) for the plans that this partitioner chooses from, whatever the budget, by ascending
   * recompute_seconds. NULL: there is one plan only. */
  tsr_error* (*front)(void* self, tsr_graph* joint, const tsr_options*, tsr_partition*,
                      void (*each)(void* ctx, const tsr_partition* plan), void* ctx);
} tsr_partitioner;

typedef enum tsr_step_kind {
  TSR_STEP_KERNEL = 0,
  TSR_STEP_VIEW,
  TSR_STEP_COPY,
  TSR_STEP_SECTION,
  TSR_STEP_CONTROL
} tsr_step_kind;
typedef struct tsr_step { /* one row of an executable's plan */
  uint32_t kind;          /* tsr_step_kind */
  tsr_id node;            /* provenance in the final graph */
  const char* op;
  const char* backend;
  const tsr_kernel* kernel; /* TSR_STEP_KERNEL */
  const uint32_t* inputs;
  uint32_t num_inputs; /* tensor slots */
  uint32_t num_outputs;
  const uint32_t* outputs;
  int64_t workspace_bytes;                    /* -1: depends on dims */
  double predicted_seconds, measured_seconds; /* negative: unknown */
  tsr_loc loc;
  /* ---- appended in ABI 0.3. Given to executors; a table for people leaves them 0. */
  uint32_t queue;          /* whose stream it is queued on: an index of tsr_step_table.queues */
  uint32_t workspace_root; /* root that its workspace lies in; TSR_NONE: it has none */
  int64_t workspace_offset;
  /* Rows that must be done before this one begins, because of data or because memory is used again. Those that other rows of
   * the list wait for already may be left out. Rows without a path of waits between them may run in any order. */
  const uint32_t* waits;
  uint32_t num_waits;
  uint32_t reserved;
  uint64_t site; /* tsr_launch.site */
} tsr_step;

typedef enum tsr_root_kind {
  TSR_ROOT_INPUT = 0, /* the caller's tensor: lies elsewhere in every call */
  TSR_ROOT_OUTPUT,    /* memory of a result, allocated for the call */
  TSR_ROOT_ARENA,     /* memory of intermediate values; nobody needs what is in it before or after a call */
  TSR_ROOT_CONSTANT   /* lies in one place as long as the plan does */
} tsr_root_kind;
typedef struct tsr_root { /* a piece of memory that slots lie in */
  uint32_t kind;          /* tsr_root_kind */
  uint32_t number;        /* of the input or output */
  tsr_device device;
  uint32_t reserved;
  int64_t bytes; /* of an arena; else -1 */
  void* address; /* of a constant; else NULL */
} tsr_root;
typedef struct tsr_slot { /* a tensor of the plan */
  uint32_t root;          /* TSR_NONE: the rows of this table do not use it */
  uint32_t dtype, rank;
  tsr_device device;
  int64_t offset; /* bytes, from the root's address */
  const int64_t* sizes;
  const int64_t* strides;
  uint32_t flags; /* TSR_TENSOR_* */
  uint32_t reserved;
} tsr_slot;

typedef struct tsr_step_table {
  size_t struct_size;
  const tsr_step* steps;
  size_t count, stride;
  uint32_t num_slots, reserved;
  /* ---- appended in ABI 0.3. Given to executors; valid during `prepare`. */
  const char* name; /* of the graph */
  const tsr_slot* slots;
  size_t slot_stride;
  const tsr_root* roots;
  size_t num_roots, root_stride;
  const tsr_device* queues; /* devices whose streams rows are queued on */
  uint32_t num_queues;
  /* 1: the plan has symbolic sizes, and offsets and arenas are those of the largest sizes that it is compiled for, so that all
   * calls have them in common: only dims, sizes and strides differ from call to call. 0: everything here holds for every call
   * that comes. */
  uint32_t bounded;
  const int64_t* dims; /* of the call that the table was made for; num_dims of them */
  size_t num_dims;
} tsr_step_table;

typedef struct tsr_executor_call {
  size_t struct_size;
  /* By row of the table, ready to be launched: addresses, workspace, dims, stream, fault record and site of this call. A copy
   * has one input and one output. */
  const tsr_launch* launches;
  size_t launch_stride;
  void* const* roots; /* by root: its address in this call; of an arena that the executor has to bring NULL, until place() */
  const int64_t* dims;
  tsr_stream* const* streams; /* by queue */
  tsr_fault* const* faults;   /* by queue: what the stream's kernels write to */
  /* Says where an arena lies in this call, aligned to 64 bytes, and changes `roots` and `launches` accordingly. */
  void (*place)(void* ctx, uint32_t root, void* address);
  void* ctx;
} tsr_executor_call;

typedef struct tsr_executor {
  size_t struct_size;
  const char* device;
  /* Of one layout of one plan. *prepared NULL: declined, and *why (a static string, or NULL) says why: that plan runs step by
   * step. */
  tsr_error* (*prepare)(void* self, const tsr_step_table*, void** prepared, const char** why);
  /* Queues the work of all rows, so that it comes behind what is queued on `streams`, and what is queued there later comes
   * behind it. *taken 0: declined, nothing is queued, and this call runs step by step. May be called from several threads at
   * once. An error ends the call; what has been queued of it by then may still run, and `release` waits for it. */
  tsr_error* (*run)(void* self, void* prepared, const tsr_executor_call*, int* taken);
  /* Work of its last calls may still be queued: the executor waits for it where that matters. */
  void (*release)(void* self, void* prepared);
  uint64_t
      capabilities; /* TSR_CAP_DETERMINISTIC: a run gives the bits that launching the steps one by one would give; TSR_EXECUTOR_* */
} tsr_executor;
/* `run` brings the arenas itself, by place(): no memory is taken for them. */
#define TSR_EXECUTOR_OWNS_MEMORY (1ull << 32)
/* Plans with symbolic sizes come in layouts at upper bounds where these are known (tsr_step_table.bounded), else once per
 * layout. */
#define TSR_EXECUTOR_BOUNDS (1ull << 33)

typedef struct tsr_store_info {
  size_t struct_size;
  const char*
      location; /* for messages: a folder, a host; lives as long as the instance. NULL or "": nobody named one, nothing is kept */
  uint32_t exclusive; /* 1: only this user (and the administrator) can change what `get` returns. Else entries must be signed */
  uint32_t writable;  /* 0: put and remove are not called */
  const char* why;    /* why it is not exclusive; may be NULL; valid until the next call */
} tsr_store_info;

typedef struct tsr_mapping {
  size_t struct_size;
  const void* bytes; /* aligned to 4096 bytes, shared with whoever maps the same entry; stay as they are until `release` */
  size_t length;
  void (*release)(void* ctx);
  void* ctx;
  /* Where the bytes lie, and when they were put there: equal numbers mean bytes that nobody has written to since, as far as the
   * place itself can tell. */
  uint64_t identity[4];
} tsr_mapping;

typedef struct tsr_part {
  const void* bytes;
  size_t length;
} tsr_part;

typedef struct tsr_store {
  size_t struct_size;
  /* key: lower-case hex. get: *found 0 or 1, bytes through alloc. put: atomic, last writer wins. */
  tsr_error* (*get)(void* self, const char* key, void* (*alloc)(void* ctx, size_t), void* ctx, int* found);
  tsr_error* (*put)(void* self, const char* key, const void* bytes, size_t length);
  tsr_error* (*remove)(void* self, const char* key);
  tsr_error* (*list)(void* self, void (*each)(void* ctx, const char* key, uint64_t bytes, int64_t last_used_unix), void* ctx);
  tsr_error* (*info)(void* self, tsr_store_info*); /* asked once, before anything else. NULL: writable, and not exclusive */
  /* ---- appended since the first version of this table */
  /* As `get`, without a copy. NULL: entries are only read as a whole, and large ones are not kept. */
  tsr_error* (*map)(void* self, const char* key, tsr_mapping* out, int* found);
  /* As `put`, of parts that lie one behind the other. NULL: as `map`. */
  tsr_error* (*put_parts)(void* self, const char* key, const tsr_part* parts, size_t count);
} tsr_store;

#ifdef __cplusplus
}
#endif
#endif /* TESSERA_ABI_H */
