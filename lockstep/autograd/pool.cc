#include "lockstep/ops/pool.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/node.h"
#include "lockstep/ops/launch.h"

namespace lockstep {

Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options) {
  ops::ShardScope scope(shard_of({x}));
  auto [y, where] = ops::max_pool2d(x.detach(), options);
  return record("max pool", {x}, y, [where = where, shape = x.shape(), options](const Node&, const Tensor& dy) {
    return std::vector<Tensor>{ops::max_pool2d_backward(dy, where, shape, options)};
  });
}

Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options) {
  ops::ShardScope scope(shard_of({x}));
  return record("avg pool", {x}, ops::avg_pool2d(x.detach(), options),
                [shape = x.shape(), options](const Node&, const Tensor& dy) {
                  return std::vector<Tensor>{ops::avg_pool2d_backward(dy, shape, options)};
                });
}

Tensor global_avg_pool2d(const Tensor& x) {
  ops::ShardScope scope(shard_of({x}));
  return record("global avg pool", {x}, ops::global_avg_pool2d(x.detach()),
                [shape = x.shape(), layout = x.layout()](const Node&, const Tensor& dy) {
                  return std::vector<Tensor>{ops::global_avg_pool2d_backward(dy, shape, layout)};
                });
}

}  // namespace lockstep
