// All of Lockstep's public headers. Only these are installed. You can also include one alone.
#pragma once

// Tensors and gradients.
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/creation.h"
#include "lockstep/autograd/function.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/shards.h"
#include "lockstep/autograd/tensor.h"
#include "lockstep/base/random.h"
#include "lockstep/tensor/array.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/view.h"

// Functions of tensors.
#include "lockstep/autograd/activations.h"
#include "lockstep/autograd/attention.h"
#include "lockstep/autograd/compare.h"
#include "lockstep/autograd/concatenate.h"
#include "lockstep/autograd/conv.h"
#include "lockstep/autograd/dims.h"
#include "lockstep/autograd/dropout.h"
#include "lockstep/autograd/elementwise.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/index.h"
#include "lockstep/autograd/interpolate.h"
#include "lockstep/autograd/losses.h"
#include "lockstep/autograd/matmul.h"
#include "lockstep/autograd/normalize.h"
#include "lockstep/autograd/pad.h"
#include "lockstep/autograd/pool.h"
#include "lockstep/autograd/reduce.h"
#include "lockstep/autograd/shape.h"
#include "lockstep/autograd/slice.h"
#include "lockstep/autograd/softmax.h"
#include "lockstep/autograd/sort.h"
#include "lockstep/autograd/triangle.h"
#include "lockstep/backend/window.h"

// Devices.
#include "lockstep/device/device.h"
#include "lockstep/ops/inter_op_parallel_guard.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/runtime/timeline.h"

// Modules and layers.
#include "lockstep/nn/activations.h"
#include "lockstep/nn/attention.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/identity.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/module_list.h"
#include "lockstep/nn/normalization.h"
#include "lockstep/nn/parameter.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/recurrent.h"
#include "lockstep/nn/residual.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/nn/state_dict.h"
#include "lockstep/nn/summary.h"
#include "lockstep/nn/transformer.h"
#include "lockstep/nn/upsample.h"

// Optimizers, schedules, loss scaling.
#include "lockstep/optim/adam.h"
#include "lockstep/optim/loss_scaler.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/optim/weight_average.h"

// Data.
#include "lockstep/data/data_loader.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/data/head_dataset.h"
#include "lockstep/data/map_dataset.h"
#include "lockstep/data/random_dataset.h"
#include "lockstep/data/sampler.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/data/text.h"

// Models.
#include "lockstep/models/gpt.h"
#include "lockstep/models/lenet.h"
#include "lockstep/models/lstm_language_model.h"
#include "lockstep/models/mlp.h"
#include "lockstep/models/models.h"
#include "lockstep/models/resnet.h"

// Files of weights, checkpoints.
#include "lockstep/checkpoint/training_checkpoint.h"
#include "lockstep/checkpoint/weights.h"

// Several devices, several processes.
#include "lockstep/comm/process_group.h"
#include "lockstep/launch/launch_environment.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/parallel/balance.h"
#include "lockstep/parallel/balancer.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/job.h"
#include "lockstep/parallel/recorded_step.h"
#include "lockstep/parallel/split.h"

// Training loops.
#include "lockstep/train/evaluate.h"
#include "lockstep/train/plot.h"
#include "lockstep/train/trainer.h"

// Errors, and the version.
#include "lockstep/base/error.h"
#include "lockstep/base/export.h"
#include "lockstep/base/version.h"
#include "lockstep/version.h"
