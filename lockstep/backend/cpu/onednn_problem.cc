#include "lockstep/backend/cpu/onednn_problem.h"

namespace lockstep::onednn {

bool Problem::is_output(int role) const {
  switch (kind) {
    case Kind::conv_forward:
    case Kind::matmul: return role == kY;
    case Kind::conv_backward_data: return role == kX;
    case Kind::conv_backward_weights: return role == kW || role == kBias;
  }
  return false;
}

std::size_t ProblemHash::operator()(const Problem& p) const {
  std::uint64_t hash = 0;
  auto add = [&](std::int64_t value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  };
  add(static_cast<int>(p.kind) | p.threads << 8 | p.transpose_x << 4 | p.transpose_w << 5);
  for (const OperandSpec& o : p.operands) {
    add(static_cast<int>(o.dtype) | static_cast<int>(o.layout) << 8 | o.shape.dim() << 16);
    for (std::int64_t n : o.shape) add(n);
  }
  for (const auto* pair : {&p.conv.stride, &p.conv.padding, &p.conv.dilation}) {
    for (std::int64_t n : *pair) add(n);
  }
  add(p.conv.groups);
  return hash;
}

}  // namespace lockstep::onednn
