// All of Lockstep's public headers. Only these are installed. You can also include one alone.
#pragma once

// Tensors, operations, losses, functions of your own.
#include "lockstep/autograd/function.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/losses.h"
#include "lockstep/autograd/tensor.h"
#include "lockstep/backend/window.h"
#include "lockstep/base/random.h"
#include "lockstep/tensor/array.h"
#include "lockstep/tensor/copy_options.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/view.h"

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
#include "lockstep/models/models.h"

// Files of weights, checkpoints.
#include "lockstep/checkpoint/epoch_report.h"
#include "lockstep/checkpoint/training_checkpoint.h"
#include "lockstep/checkpoint/weights.h"

// Several devices, several processes.
#include "lockstep/comm/process_group.h"
#include "lockstep/launch/launch_environment.h"
#include "lockstep/launch/spawn.h"
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
#include "lockstep/engine/failure.h"
#include "lockstep/net/comm_error.h"
#include "lockstep/version.h"
