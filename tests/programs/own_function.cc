// A differentiable function of one's own, with an argument that is no tensor.
#include <lockstep/lockstep.h>

#include "programs.h"

using namespace lockstep;

// program begins
struct Clip : Function {  // its gradient passes where the input is at most twice the limit
  SavedTensor x;
  double limit = 0;
  Tensor forward(const Tensor& in, double at) {
    x = in;
    limit = at;
    return clamp(in, -at, at);
  }
  Tensor backward(const Tensor& dy) { return dy * le(abs(x.get()), 2 * limit).to(DType::f32); }
};
// program ends

void programs::own_function(const std::filesystem::path&) {
  Tensor h = tensor({-3.0, -1.5, 0.5, 4.0}).to(devices()[0]);
  h.set_requires_grad(true);
  // program begins
  const Tensor y = apply<Clip>(h, 1.0);
  // program ends
  sum(y).backward();
  check(y.to_vector<float>() == std::vector<float>{-1, -1, 0.5F, 1}, "clip: found {}", y.str());
  check(h.grad().to_vector<float>() == std::vector<float>{0, 1, 1, 0}, "the gradient of clip: found {}",
        h.grad().str());
}
