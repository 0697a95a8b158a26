# gpu_tests(PREFIX [EMULATED]): what runs on GPUs, or in the emulator. Every program is ${PREFIX}gpu_...:
#   gpu_test          the kernels, by the tests of all back ends (tests/backend), fed from host memory
#   gpu_devices_test  devices of a runtime, by tests of layers above, whose runtimes have logical devices of a GPU instead
#                     (runtime_on_gpu.h)
#   gpu_ranks_test    ranks that are threads or processes, each with a GPU of its own, between which NCCL moves gradients, and
#                     what was written for ranks with CPU devices (runtime_on_own_gpu.h)
function(gpu_tests PREFIX)
  set(tests ${PROJECT_SOURCE_DIR}/tests)

  file(GLOB sources CONFIGURE_DEPENDS ${tests}/gpu/*.cc ${tests}/gpu/*.cu)
  set(kernel_tests elementwise copy index reduce matmul conv norm row_norm pool softmax random optimizer)
  list(TRANSFORM kernel_tests REPLACE "(.+)" "${tests}/backend/\\1_test.cc")
  add_executable(${PREFIX}gpu_test ${sources} ${kernel_tests} ${tests}/backend/kernel_testing.cc)
  lockstep_link_layers(${PREFIX}gpu_test ${ARGN} backend autograd comm)

  set(device_tests ops/copy_test autograd/functions_test autograd/batch_norm_test autograd/graph_test
                   autograd/parameter_gradient_test autograd/tensor_functions_test autograd/basis_test
                   autograd/gradient_testing autograd/basis_functions autograd/loss_functions autograd/layer_functions
                   nn/batch_norm_test optim/optimizer_test
                   optim/loss_scaler_test parallel/data_parallel_test parallel/lockstep_property_test
                   parallel/recorded_step_test parallel/recorded_step_errors_test parallel/split_test)
  list(TRANSFORM device_tests REPLACE "(.+)" "${tests}/\\1.cc")
  file(GLOB sources CONFIGURE_DEPENDS ${tests}/gpu/devices/*.cc)
  add_executable(${PREFIX}gpu_devices_test ${sources})
  moved_tests(${PREFIX}gpu_devices_test ${tests}/gpu/devices/runtime_on_gpu.h ${device_tests})
  lockstep_link_layers(${PREFIX}gpu_devices_test ${ARGN} train models)

  set(rank_tests parallel/lockstep_property_test parallel/distributed_data_parallel_test
                 parallel/distributed_data_parallel_errors_test parallel/distributed_shares_test)
  list(TRANSFORM rank_tests REPLACE "(.+)" "${tests}/\\1.cc")
  file(GLOB sources CONFIGURE_DEPENDS ${tests}/gpu/ranks/*.cc)
  add_executable(${PREFIX}gpu_ranks_test ${sources})
  moved_tests(${PREFIX}gpu_ranks_test ${tests}/gpu/ranks/runtime_on_own_gpu.h ${rank_tests})
  lockstep_link_layers(${PREFIX}gpu_ranks_test ${ARGN} parallel models checkpoint)

  foreach(program gpu_test gpu_devices_test gpu_ranks_test)
    target_link_libraries(${PREFIX}${program} PRIVATE lockstep_tests)
  endforeach()
endfunction()

# moved_tests(PROGRAM HEADER source...): adds tests that are compiled with HEADER in front, which moves them to GPUs. They
# are compiled for PROGRAM alone.
function(moved_tests PROGRAM HEADER)
  add_library(${PROGRAM}_moved OBJECT EXCLUDE_FROM_ALL ${ARGN})
  target_compile_options(${PROGRAM}_moved PRIVATE "SHELL:-include ${HEADER}")
  lockstep_link_layers(${PROGRAM}_moved parallel models checkpoint)
  target_link_libraries(${PROGRAM}_moved PRIVATE lockstep_tests)
  set_target_properties(${PROGRAM}_moved PROPERTIES UNITY_BUILD_BATCH_SIZE 4)
  target_sources(${PROGRAM} PRIVATE $<TARGET_OBJECTS:${PROGRAM}_moved>)
endfunction()
