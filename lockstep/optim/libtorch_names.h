// Names that programs for libtorch use. A name with the same meaning here is an alias; any other name is a compile
// error that says what to write.
//
// If braces contain a wrong option, as in Sgd(net.parameters(), {.learning_rate = 0.1}), compilers do not name the
// option. If the class is written, Sgd(net.parameters(), SgdOptions{.learning_rate = 0.1}), they do.
#pragma once

#include <concepts>

#include "lockstep/autograd/losses.h"
#include "lockstep/nn/module.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/tensor/dtype.h"

namespace LOCKSTEP_API lockstep {

inline constexpr DType kFloat32 = DType::f32, kFloat = kFloat32, kFloat64 = DType::f64, kDouble = kFloat64,
                       kFloat16 = DType::f16, kHalf = kFloat16, kBFloat16 = DType::bf16, kInt64 = DType::i64,
                       kLong = kInt64, kUInt8 = DType::u8, kByte = kUInt8, kBool = DType::boolean;
// Host memory, where new tensors are made.
inline constexpr Device kCPU = kHost;

namespace cuda {
inline bool is_available() { return cuda_is_available(); }
}  // namespace cuda

// CrossEntropyLoss()(net(x), labels) is cross_entropy(net(x), labels).
template <auto kLoss, typename Options>
struct LossFunction {
  Options options = {};
  Tensor operator()(const Tensor& x, const Tensor& target) const { return kLoss(x, target, options); }
};
using CrossEntropyLoss = LossFunction<cross_entropy, CrossEntropyOptions>;
using NLLLoss = LossFunction<nll_loss, NllLossOptions>;
using MSELoss = LossFunction<mse_loss, LossOptions>;
using L1Loss = LossFunction<l1_loss, LossOptions>;
using SmoothL1Loss = LossFunction<smooth_l1_loss, SmoothL1LossOptions>;
using HuberLoss = LossFunction<huber_loss, HuberLossOptions>;
using BCELoss = LossFunction<binary_cross_entropy, ProbabilityLossOptions>;
using BCEWithLogitsLoss = LossFunction<binary_cross_entropy_with_logits, BinaryCrossEntropyOptions>;

// Always false, but known only when a template is used, so that its static_assert() fails only then.
template <typename...>
inline constexpr bool kNeverTrue = false;

template <typename... Args>
void clip_grad_norm_(const Args&...) {
  static_assert(kNeverTrue<Args...>, "write optimizer.clip_grad_norm(max_norm), after backward() and before step()");
}
template <typename... Args>
void clip_grad_value_(const Args&...) {
  static_assert(kNeverTrue<Args...>, "write optimizer.clip_grad_value(limit), after backward() and before step()");
}

template <std::derived_from<Module> M, typename... Args>
void save(const M&, const Args&...) {
  static_assert(kNeverTrue<M>, "write save_weights(path, net), or Trainer's save_folder for a whole run");
}
template <std::derived_from<Module> M, typename... Args>
void load(M&, const Args&...) {
  static_assert(kNeverTrue<M>, "write load_weights(path, net)");
}
template <typename... Args>
void save(const Tensor&, const Args&...) {
  static_assert(kNeverTrue<Args...>, "write write_safetensors(path, as_bytes({{name, tensor}}))");
}

template <std::derived_from<Optimizer> O, typename... Args>
void save(const O&, const Args&...) {
  static_assert(kNeverTrue<O>,
                "write write_safetensors(path, as_bytes(optimizer.state_dict())), or Trainer's save_folder");
}
template <std::derived_from<Optimizer> O, typename... Args>
void load(O&, const Args&...) {
  static_assert(kNeverTrue<O>,
                "write optimizer.load_state_dict(as_tensors(read_safetensors(path))), or Trainer's resume()");
}

// Batches are vectors of tensors, already stacked.
template <typename... Args>
void make_data_loader(const Args&...) {
  static_assert(kNeverTrue<Args...>,
                "write DataLoader loader(data, {.batch_size = 64, .shuffle = true}), and for "
                "(auto [x, y] : loader.on(net))");
}

// A schedule is the optimizer's rate, which each step() follows.
class StepLR {
 public:
  template <typename... Args>
  explicit StepLR(Args&&...) {
    static_assert(kNeverTrue<Args...>,
                  "a schedule is the optimizer's rate: Sgd sgd(net.parameters(), {.lr = step_lr(0.1, 30)})");
  }
  void step() {}
};

}  // namespace lockstep
