#include "lockstep/ops/attention.h"

#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/runtime/host_compute.h"

namespace lockstep::ops {
namespace {

AttentionRule rule_of(const AttentionOptions& o) {
  return {.scale = o.scale,
          .causal = o.causal,
          .position = o.position,
          .keep = 1 - o.dropout_p,
          .key = o.key.key,
          .key_at = o.key.in_memory.view(),
          .mask = o.mask.view(),
          .heads_of_mask = o.heads_of_mask};
}

void check_operands(const Array& q, const Array& k, const Array& v) {
  check(q.shape().dim() == 3 && k.shape().dim() == 3 && v.shape().dim() == 3 && q.numel() > 0 && v.numel() > 0 &&
            q.size(2) == k.size(2) && k.size(1) == v.size(1) && k.size(0) == v.size(0) && q.size(0) % k.size(0) == 0,
        "attention: query {}, key {}, value {}, expected [B, L, E], [H, S, E], [H, S, V]", q.shape(), k.shape(),
        v.shape());
}

}  // namespace

bool fuses_attention(Device device, DType dtype) { return backend_of(device, "attention").fuses_attention(dtype); }

AttentionResult attention(const Array& q, const Array& k, const Array& v, const AttentionOptions& options) {
  check_operands(q, k, v);
  const AttentionResult r{empty({q.size(0), q.size(1), v.size(2)}, q.dtype(), q.device()),
                          empty({2, q.size(0), q.size(1)}, DType::f32, q.device())};
  launch("attention", {q, k, v, options.mask, options.key.in_memory}, {r.y, r.stats},
         kernels::Attention{rule_of(options), q.view(), k.view(), v.view(), r.y.view(), r.stats.view()});
  return r;
}

AttentionGradients attention_backward(const Array& q, const Array& k, const Array& v, const AttentionResult& result,
                                      const Array& dy, const AttentionOptions& options) {
  check_operands(q, k, v);
  check_same("attention backward", result.y, dy);
  check(options.position == 0, "attention backward: position {}, expected 0", options.position);
  const Array g = to_layout(dy, Layout::plain);
  const AttentionGradients d{empty_like(q), empty_like(k), empty_like(v)};
  launch("attention backward", {q, k, v, result.y, result.stats, g, options.mask, options.key.in_memory},
         {d.q, d.k, d.v},
         kernels::AttentionBackward{rule_of(options), q.view(), k.view(), v.view(), result.y.view(),
                                    result.stats.view(), g.view(), d.q.view(), d.k.view(), d.v.view()});
  return d;
}

}  // namespace lockstep::ops
