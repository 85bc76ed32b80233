"""Names that code of frameworks and of Python goes by: what has none of them is the user's."""

from __future__ import annotations

import sys
from typing import Final

# Packages with a name that people also give to a folder of their own: what is surely the package's.
SURELY: Final = ("datasets/arrow_", "datasets/formatting/", "datasets/iterable_dataset.py")

_FOLDERS = """
asyncio collections compression concurrent ctypes curses dbm distutils email encodings
ensurepip html http idlelib importlib json lib2to3 logging multiprocessing pathlib pydoc_data
re sqlite3 string sysconfig tkinter tomllib unittest urllib venv wsgiref xml xmlrpc zipfile
zoneinfo
"""
STDLIB_FOLDERS: Final = frozenset(_FOLDERS.split())
# Single files, but for names that scripts have too.
STDLIB_FILES: Final = sys.stdlib_module_names - {"test", "code", "profile", "trace", "this"}
# Packages of one file.
FRAMEWORK_MODULES: Final = frozenset({"decorator", "six", "typing_extensions"})

# Files in jax 0.10, numpy 2 and torch.utils.data as installed, and those of flax, optax, orbax,
# grain, TensorFlow and Keras that a training loop runs. Names that begin with an underscore need
# no entry.
_FILES = """
abstract_arrays abstract_path activation activations ad ad_checkpoint ad_util adhoc_error alias
all_gather ann api api_util app argparse_flags arith array_api_metadata array_as_img
array_checkpoint_handler array_constructors array_creation array_metadata array_metadata_store
array_methods array_ops array_spec array_utils arrayprint async_checkpoint_handler
async_checkpointer asyncio_utils atomic_function atomicity attention attrs auto_display_utils
auto_utils autograph_util axes_scan backend backward_compatibility base base_layer base_optimizer
base_pytree_checkpoint_handler basearray batch batching bcoo bcsr bernoulli beta betabinom betaln
bfgs binary_import binom block_spec blocked_sampler bridge buffer_callback builtin cache_key
call_tf callback callback_list cast_utils cauchy cell_autoreload chebyshev checkify checking
checkpoint_handler checkpoint_manager checkpointer checkpoints chex chi2 chlo cli_debugger
clipping cloud_tpu_cluster cloud_tpu_init cluster colab_debugger colab_lib colab_utils collate
collect_profile combine command_name common common_utils compat compilation_cache
compilation_cache_interface compiler complex_valued composite composite_checkpoint_handler
compute_on concrete_function conditionals config constant_op constrain constraints context
control_deps converter convolution coo core cost_estimate cpu_sparse csr curr_args cursor
custom_api_util custom_batching custom_derivatives custom_evaluate custom_fusion_lib
custom_partitioning custom_partitioning_sharding_rule cversions data_adapter data_adapter_utils
data_loader dataclass_flags dataclass_utils dataloader dataset dataset_iterator dataset_ops debug
debugging decode_attention def_function defchararray defmatrix deprecations descriptors dialect
dialect_lowering dialects dirichlet discharge dispatch distributed dlpack dtypes dummy earray
effects eigh einops_utils einshape einsum einsumfunc env_utils environment_info error error_check
error_handling errors eval_jaxpr example_kernel exceptions execute expon export extending
extending_distributions extract extras factorized fetch ffi fft field_utils filterlib flags
flash_attention flatten_util format fp8_ops fragments fromnumeric frozen_dict frozen_utils func
func_backend function function_base function_type functional functions fused
fused_attention_stablehlo fuser fuser_utils fusible fusible_dtype fusion future gamma
gen_array_ops gen_dataset_ops gen_math_ops generate_map gennorm geo_utils geom getlimits gmm gpath
gpu_callbacks gpu_common_utils gpu_linalg gpu_prng gpu_rnn gpu_solver gpu_sparse gpu_triton graph
graph_settings gumbel_l gumbel_r hardware_utils hashable_array helpers hermite hermite_e
highlight_util hijax hlo hlo_interpreter html_helper ifrt_programs index_tricks indexing
inference_utils initializers inplace_reload integrate interp_utils interpolate
interpret_pallas_call introspect ip_utils ir iteration iterator_ops jax2tf jax_array_handlers
jax_trainer jax_utils jaxpr jaxpr_fusion jaxpr_interpret jaxpr_util jet json_checkpoint_handler
k8s_cluster kde keras_tensor kernel laguerre lapack laplace launch_context lax lax_numpy
lax_reference layer layer_norm layout layout_defs layout_inference layouts lazy_api_imports_utils
lazy_dataset lazy_imports lazy_imports_utils lazy_loader lazy_utils legendre lift linalg
line_search linear linear_algebra linear_util linesearch literals logging_config logging_utils
logistic lookahead loops lora loss lowering lru_cache map_dataset math_ops matlib matmul memmap
memref mesh mesh_utils meta metrics minimize mixins mlir mock_colab module module_deps_utils
module_utils monitoring monomorphic_function mpi4py_cluster mpmd mrecords multiarray multihost
multihost_utils multinomial multivariate_normal named_sharding nbinom ndimage nnx_loss nodes norm
normalization npyio numeric numerics numerictypes numpy_utils obj obj_backend object ocdbt_utils
ode ompi_cluster op_shardings operation ops optimizers other overrides paged_attention
paged_attention_kernel pallas pallas_call pallas_call_registration parallel params pareto parse
partial_eval partition_spec partitioning passmanager patch_utils path philox philox2x32 philox4x32
pickle_util pin_memory pipeline pjit plugin_support pmap poisson polymorphic_function polynomial
polyutils pooling prefetch prefetch_iterator pretty_printer primitives printoptions privacy prng
prng_utils profiler proto_checkpoint_handler proxy_caller pxla py_js_com py_utils
pytree_checkpoint_handler pytree_checkpointer pytree_serialization pytree_serialization_utils
pytreelib qdwh quantization_utils race_detection_state rbg re_utils recfunctions records recurrent
reductions ref register reload_workspace_lib remat reraise_utils resource_utils
resource_variable_ops rms_norm rnglib rnn roofline rooflines sampler sc_core sc_lowering
sc_primitives scalar_types scale scaled_dot scaled_matmul_stablehlo scatter scf schedule
scheduling_groups scimath scope sdy second_order sequential serialization serialization_generated
serialize_executable setops shape_base shape_poly shape_poly_decision shard_alike shard_map
sharding sharding_impls shared_memory shared_memory_array shuffle signal_handling signal_helper
signaling_client slicing slurm_cluster softmax solves sorting source_info_util sourcemap
sparse_tensor special splash_attention_kernel splash_attention_mask splash_attention_mask_info
spmd stablehlo stack stages standard_checkpoint_handler standard_checkpointer stat_utils
state_utils stateful_rng statelib stax std step_statistics stochastic stride_tricks strings
structured_function subchunking summary summary_ops_v2 svd synchronization t tabs
tensor_contractions tensor_util tensorstore_impl text_utils tf_trainer thread_map threefry
threefry2x32 threefry4x32 topologies torch tpu tpu_custom_call tpu_info tpu_sc tqdm_utils
traceback_util traceback_utils tracers tracing_compilation train_state trainer training transfer
transform transforms tree tree_metadata tree_util tree_utils triton truncnorm tuned_block_sizes
type_handler_registry type_handlers type_parsing ufunc_api ufuncs umath uniform update user_array
util utils variable_scope variablelib variables vector vector_clock vectorize version vonmises vq
web_debugger window_functions windowed_reductions worker wrapcauchy wrappers xla xla_bridge
xla_client xla_metadata xla_metadata_lib xla_transform zip
"""
FRAMEWORK_FILES: Final = frozenset(_FILES.split())
