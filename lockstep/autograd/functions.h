// All functions of tensors. Each family has a header of its own; this header is for programs that use several, as
// PyTorch programs use torch.nn.functional. Names, arguments, and defaults follow PyTorch;
// docs/decisions/33-few-kernels-carry-the-operations.md lists the exceptions.
//
//   Tensor y = flatten(relu(conv2d(x, w, bias, {.padding = {1, 1}})), 1);
//
// All operands of a call are on one device, or cut in the same way over one batch; parameters combine with either. An
// operation that needs all samples in one place throws along the batch axis; its message suggests gather() or
// per_shard().
#pragma once

#include "lockstep/autograd/activations.h"
#include "lockstep/autograd/attention.h"
#include "lockstep/autograd/compare.h"
#include "lockstep/autograd/concatenate.h"
#include "lockstep/autograd/conv.h"
#include "lockstep/autograd/creation.h"
#include "lockstep/autograd/data_dependent.h"
#include "lockstep/autograd/dims.h"
#include "lockstep/autograd/distance.h"
#include "lockstep/autograd/dropout.h"
#include "lockstep/autograd/einsum.h"
#include "lockstep/autograd/elementwise.h"
#include "lockstep/autograd/grid.h"
#include "lockstep/autograd/index.h"
#include "lockstep/autograd/indexing.h"
#include "lockstep/autograd/interpolate.h"
#include "lockstep/autograd/losses.h"
#include "lockstep/autograd/matmul.h"
#include "lockstep/autograd/normalize.h"
#include "lockstep/autograd/pad.h"
#include "lockstep/autograd/pool.h"
#include "lockstep/autograd/rearrange.h"
#include "lockstep/autograd/reduce.h"
#include "lockstep/autograd/rotary.h"
#include "lockstep/autograd/shape.h"
#include "lockstep/autograd/shards.h"
#include "lockstep/autograd/slice.h"
#include "lockstep/autograd/softmax.h"
#include "lockstep/autograd/sort.h"
#include "lockstep/autograd/triangle.h"
#include "lockstep/autograd/unfold.h"
