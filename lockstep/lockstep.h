// All of Lockstep's public headers. Only these are installed. You can also include one alone.
#pragma once

// Tensors, operations, losses, functions of your own.
#include "lockstep/autograd/function.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/losses.h"
#include "lockstep/autograd/tensor.h"
#include "lockstep/backend/update_rules.h"
#include "lockstep/backend/window.h"
#include "lockstep/base/plain_math.h"
#include "lockstep/base/random.h"
#include "lockstep/tensor/array.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/view.h"

// Devices.
#include "lockstep/device/device.h"
#include "lockstep/ops/inter_op_parallel_guard.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/runtime/timeline.h"

// Modules and layers.
#include "lockstep/nn/layers.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/normalization.h"
#include "lockstep/nn/parameter.h"
#include "lockstep/nn/sequence.h"

// Optimizers and schedules.
#include "lockstep/optim/optimizer.h"

// Data, models, files of weights, checkpoints.
#include "lockstep/checkpoint/training_checkpoint.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/data/dataset.h"
#include "lockstep/models/models.h"

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
#include "lockstep/version.h"
