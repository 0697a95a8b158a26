// cuDNN's plan for one convolution: descriptors and the algorithm, made once for each problem.
#pragma once

#include <cudnn.h>

#include <array>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/backend/conv.h"

namespace lockstep {

// A convolution with shapes as in kernels::Conv, in one dtype and one layout, which is not blocked16.
struct ConvProblem {
  ConvPass pass = ConvPass::forward;
  DType dtype = DType::f32;
  Layout layout = Layout::plain;
  Shape x, w, y;
  Conv2dOptions options;

  std::string str() const;
  // The key of a problem in maps.
  using Key = std::array<std::int64_t, 22>;
  Key key(int gpu) const;
};

// Operands in device memory, in the problem's dtype and layout, aligned to 16 bytes.
struct ConvOperands {
  void* x;
  void* w;
  void* y;
};

class ConvPlan {
 public:
  // Makes descriptors and lists the deterministic algorithms that cuDNN suggests, best first.
  ConvPlan(const ConvProblem& problem, cudnnHandle_t handle, bool tf32);

  std::size_t candidates() const { return candidates_.size(); }
  // Selects a candidate. The first one is selected initially.
  void use(std::size_t candidate);
  std::size_t workspace_bytes() const { return candidates_[used_].memory; }
  // The largest workspace of any candidate.
  std::size_t most_workspace_bytes() const;
  // Returns false and queues nothing if cuDNN cannot run the algorithm that it suggested.
  bool run(cudnnHandle_t handle, const ConvOperands& operands, void* workspace) const;

  // Whether the selected algorithm has run. After that, the plan does not change.
  bool proven() const { return proven_; }
  void prove() { proven_ = true; }
  // Drops the selected algorithm and selects the best one of the rest, if any.
  void reject();

 private:
  struct Candidate {
    int algorithm;
    std::size_t memory;
    cudnnMathType_t math;
  };
  template <typename Descriptor>
  using Owned = std::unique_ptr<std::remove_pointer_t<Descriptor>, cudnnStatus_t (*)(Descriptor)>;

  Owned<cudnnTensorDescriptor_t> tensor(const Shape& shape) const;
  template <typename Results>
  void keep(const Results& results, int found, bool fma);

  const ConvProblem problem_;
  Owned<cudnnTensorDescriptor_t> x_, y_;
  Owned<cudnnFilterDescriptor_t> w_;
  Owned<cudnnConvolutionDescriptor_t> conv_;
  std::vector<Candidate> candidates_;
  std::size_t used_ = 0;
  bool proven_ = false;
};

}  // namespace lockstep
