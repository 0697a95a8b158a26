// A parameter: one object with a replica on each of its devices and a gradient for each shard. It is a tensor: matmul(x,
// weight) or sum(square(weight)) is written as in PyTorch. Data parallelism is a property of the parameter, not a wrapper that
// clones models.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/autograd/tensor.h"
#include "lockstep/nn/initializer.h"

namespace LOCKSTEP_API lockstep {

class GradientTree;      // nn/gradient_tree.h
struct ReducedGradient;  // nn/gradient_reducer.h

struct ParameterOptions {
  // An extent of 0 is not known yet; the first forward pass settles it (deferred initialization).
  Shape shape{};
  DType dtype = DType::f32;
  // Used instead of the model's: biases start at 0 whatever weights start with.
  Initializer initializer{};
  // False for buffers: running statistics and the like have no gradient.
  bool trainable = true;
  // True for a buffer that training computes, such as running statistics: an infinity in it is an error. A mask may hold one.
  bool computed = false;
};

// A handle; copies are the same parameter.
class Parameter {
 public:
  Parameter() = default;
  explicit Parameter(ParameterOptions options);

  // As in the model, "resnet_block2.0.conv3.bias"; given by Module::initialize.
  const std::string& name() const;
  // With 0 for extents that are not known yet.
  const Shape& shape() const;
  DType dtype() const;
  bool trainable() const;
  // PyTorch's requires_grad_(). A frozen parameter (false) has no gradient and stays as it is, whatever optimizer has it.
  // Autograd does not record operations on frozen parameters and data alone, so backward() ends above them. A gradient that it
  // has already is dropped. Throws for a parameter of integers.
  void set_trainable(bool trainable) const;
  // As in the options.
  bool computed() const;
  bool shape_known() const;
  // The devices that hold a replica, or will as soon as the shape is known.
  const std::vector<Device>& devices() const;

  // The replicated tensor. Gradients of everything computed from it come to this parameter. Throws if the parameter is not
  // initialized, or its shape not known yet.
  Tensor tensor() const;
  operator Tensor() const { return tensor(); }  // NOLINT(google-explicit-constructor)
  // The replica on `device`, without a history. Throws, naming the devices that hold one, if there is none.
  Tensor data(Device device) const;
  // The first device's replica, copied to the host. Waits.
  Tensor host_data() const;
  // Overwrites all replicas with `value`, from the host or any device. Settles the shape.
  void set_data(const Tensor& value);

  // Settles the extents that were not known; the others have to agree. Makes the replicas if devices are given.
  void settle_shape(const Shape& shape);
  // Gives the parameter its name, devices and start values. Replicas are made now if the shape is known, else by
  // settle_shape. `fallback` initializes where the options named no initializer.
  void initialize(std::string name, const std::vector<Device>& devices, const Initializer& fallback,
                  std::uint64_t seed);
  bool initialized() const { return !devices().empty(); }
  // Replaces the replicas by ones on these devices, with the values of the first. Drops the gradient. Throws for a
  // parameter that is not initialized, or that an optimizer or DistributedDataParallel has, which keep their state on
  // its devices.
  void to(const std::vector<Device>& devices) const;
  void check_movable() const;

  // The gradient since it was last cleared: over all shards, weighted as backward() was told, on `device`. Undefined
  // if the parameter had none.
  Tensor gradient(Device device) const;
  Tensor gradient() const { return gradient(devices().at(0)); }
  // The same, for the optimizer, which must not change it; and if other processes take part, whether any shard had one.
  ReducedGradient reduced_gradient(Device device) const;
  void zero_grad() const;
  // An optimizer holds this for as long as it has the parameter.
  std::shared_ptr<void> claim() const;
  // Whether any does.
  bool optimized() const;
  // This process's part of the gradient; see parallel/bucket_reducer.h.
  GradientTree& gradient_tree() const;

  bool operator==(const Parameter&) const = default;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
