#include "tests/models/operation_cases.h"

#include <limits>

namespace lockstep::testing {
namespace {

// 0, so that results without a gradient have one.
Tensor zero(const Tensor& x) { return sum(x) * 0; }
Tensor numbers(const Tensor& mask, const Tensor& like) { return cast(mask, like.dtype()); }

template <typename OfTensors, typename OfNumber>
Operation comparison(const OfTensors& f, const OfNumber& g) {
  return [=](const In& x) {
    return (x[0] + 9) * numbers(f(x[0], x[1]), x[0]) + x[1] * 0 + x[0] * numbers(g(x[0], 0.5), x[0]);
  };
}

// Shows the first key and others.
Tensor visible(std::int64_t queries, std::int64_t keys, Device device) {
  std::vector<std::uint8_t> mask;
  for (std::int64_t q = 0; q < queries; ++q) {
    for (std::int64_t k = 0; k < keys; ++k) mask.push_back(k == 0 || (q + 2 * k) % 3 == 1);
  }
  return Tensor::from(mask, {queries, keys}).to(device);
}

Operation kl(Reduction reduction) {
  return [=](const In& x) { return kl_div(log_softmax(x[0], 1), softmax(x[1], 1), {.reduction = reduction}); };
}

}  // namespace

Operations more_operations() {
  return {
      {"exp", [](const In& x) { return exp(x[0]); }},
      {"log", [](const In& x) { return log(square(x[0]) + 0.5); }},
      {"sqrt", [](const In& x) { return sqrt(square(x[0]) + 0.5); }},
      {"sigmoid", [](const In& x) { return sigmoid(x[0]); }},
      {"tanh", [](const In& x) { return tanh(x[0]); }},
      {"arithmetic",
       [](const In& x) {
         return -x[0] + x[0] * x[1] - 2 / (x[0] * x[0] + 1) + (1 - x[1]) / (x[1] * x[1] + 1) - x[0] / 3;
       }},
      {"gelu by tanh", [](const In& x) { return gelu(x[0], {.approximate = GeluApproximation::tanh}); }},
      {"sum of all", [](const In& x) { return sum(x[0]); }},
      {"mean of all", [](const In& x) { return mean(x[0]); }},
      {"sum of a mask", [](const In& x) { return numbers(sum(gt(x[0], 0.25), 1), x[0]) + zero(x[0]); }},
      {"cumsum of a mask", [](const In& x) { return numbers(cumsum(gt(x[0], 0), 2), x[0]) + zero(x[0]); }},
      {"amax of a mask",
       [](const In& x) {
         return numbers(amax(gt(x[0], 1), {0, 2}), x[0]) + zero(x[0]);
       }},
      {"unsqueeze", [](const In& x) { return unsqueeze(x[0], 1) * unsqueeze(x[0], -2); }},
      {"embedding, padding from the end",
       [](const In& x) {
         return embedding(ids(x[0], {2, 4}), x[0], -1);
       }},
      {"scatter_add of a shorter index",
       [](const In& x) {
         return scatter_add(x[0], 1, ids(x[0], {1, 2, 3}), x[1]);
       }},
      {"scatter_add of a column",
       [](const In& x) {
         return scatter_add(x[0], 1, ids(x[0], {2, 5, 1}), x[1]);
       }},
      {"conv2d",
       [](const In& x) {
         return conv2d(x[0], x[1], x[2], {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}, .groups = 2});
       }},
      {"max_pool2d",
       [](const In& x) {
         return max_pool2d(x[0], {.kernel_size = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
       }},
      {"avg_pool2d",
       [](const In& x) {
         return avg_pool2d(x[0], {.kernel_size = {2, 3}, .stride = {2, 1}});
       }},
      {"kl_div summed", kl(Reduction::sum)},
      {"kl_div of elements", kl(Reduction::none)},
      {"kl_div over elements", kl(Reduction::mean)},
      {"rms_norm", [](const In& x) { return rms_norm(x[0], {4}, x[1]); }},
      {"rms_norm over two axes",
       [](const In& x) {
         return rms_norm(x[0], {3, 4}, x[1], 0.1);
       }},
      {"rms_norm without a weight", [](const In& x) { return rms_norm(x[0], {4}); }},
      {"scaled_dot_product_attention", [](const In& x) { return scaled_dot_product_attention(x[0], x[1], x[2]); }},
      {"causal attention",
       [](const In& x) { return scaled_dot_product_attention(x[0], x[1], x[2], {.is_causal = true}); }},
      {"masked attention",
       [](const In& x) {
         return scaled_dot_product_attention(x[0], x[1], x[2], {.attn_mask = visible(3, 5, x[0].device())});
       }},
      {"attention with a bias",
       [](const In& x) { return scaled_dot_product_attention(x[0], x[1], x[2], {.attn_mask = x[3], .scale = 0.7}); }},
  };
}

Operations later_operations() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto with_places = [](const SortResult& y) { return y.values * (numbers(y.indices, y.values) + 1); };
  return {
      {"log1p", [](const In& x) { return log1p(square(x[0]) - 0.5); }},
      {"norm", [](const In& x) { return norm(x[0], 2, 1); }},
      {"norm of all", [](const In& x) { return norm(x[0]); }},
      {"norms of other powers",
       [](const In& x) {
         return norm(x[0], 1, {0, 2}, true) + norm(x[0], 3, {0, 2}, true) + norm(x[0], kInfinity, {0, 2}, true);
       }},
      {"prod", [](const In& x) { return prod(x[0], 1); }},
      {"prod of all", [](const In& x) { return prod(x[0]); }},
      {"pad",
       [](const In& x) {
         return pad(x[0], {1, 2, 0, 3}, 0.5);
       }},
      {"pad by negative widths",
       [](const In& x) {
         return pad(x[0], {-1, 2, 1, -1});
       }},
      {"sort", [](const In& x) { return sort(x[0], 1).values; }},
      {"sort, descending", [=](const In& x) { return with_places(sort(x[0], -1, true)); }},
      {"argsort", [](const In& x) { return numbers(argsort(x[0], 0), x[0]) + zero(x[0]); }},
      {"topk", [](const In& x) { return topk(x[0], 2).values; }},
      {"topk, smallest", [=](const In& x) { return with_places(topk(x[0], 2, 1, false)); }},
      {"max_pool1d", [](const In& x) { return max_pool1d(x[0], {.kernel_size = 3, .stride = 2, .padding = 1}); }},
      {"avg_pool1d", [](const In& x) { return avg_pool1d(x[0], {.kernel_size = 3, .stride = 2, .padding = 1}); }},
      {"avg_pool1d without padding in the mean",
       [](const In& x) {
         return avg_pool1d(x[0], {.kernel_size = 3, .stride = 2, .padding = 1, .count_include_pad = false});
       }},
      {"max_pool2d, stride of the kernel",
       [](const In& x) {
         return max_pool2d(x[0], {.kernel_size = {2, 3}});
       }},
      {"lp_pool2d",
       [](const In& x) {
         return lp_pool2d(x[0], 2, {.kernel_size = {2, 3}, .stride = {2, 1}});
       }},
      {"lp_pool2d, ceil_mode",
       [](const In& x) { return lp_pool2d(x[0], 4, {.kernel_size = 3, .stride = 2, .ceil_mode = true}); }},
      {"lp_pool2d of a broken power", [](const In& x) { return lp_pool2d(x[0] * x[0], 1.5, {.kernel_size = 2}); }},
      {"max_pool2d, ceil_mode",
       [](const In& x) {
         return max_pool2d(x[0], {.kernel_size = {3, 2}, .stride = {2, 3}, .padding = 1, .ceil_mode = true});
       }},
      {"avg_pool2d, ceil_mode",
       [](const In& x) { return avg_pool2d(x[0], {.kernel_size = 3, .stride = 2, .padding = 1, .ceil_mode = true}); }},
      {"avg_pool2d, ceil_mode without padding in the mean",
       [](const In& x) {
         return avg_pool2d(
             x[0],
             {.kernel_size = {3, 4}, .stride = {2, 3}, .padding = 1, .count_include_pad = false, .ceil_mode = true});
       }},
      {"logical functions",
       [](const In& x) {
         return numbers(logical_and(x[0], x[1]), x[0]) + 2 * numbers(logical_or(x[0], x[1]), x[0]) +
                4 * numbers(logical_xor(x[0], x[1]), x[0]) + 8 * numbers(logical_not(x[0]), x[0]) + zero(x[0]) +
                zero(x[1]);
       }},
      {"any and all",
       [](const In& x) {
         return numbers(any(gt(x[0], 0.5), 1), x[0]) + 2 * numbers(all(gt(x[0], -1), 1), x[0]) +
                4 * numbers(any(x[0]), x[0]) + zero(x[0]);
       }},
      {"sort of equals", [=](const In& x) { return with_places(sort(x[0], 2)); }},
      {"prod of zeros", [](const In& x) { return prod(x[0], 1); }},
      {"norm of zeros", [](const In& x) { return norm(narrow(x[0], 1, 0, 1) * 0, 2, 1) + norm(x[0], 2, 1); }},
  };
}

Operations operations_with_ties() {
  using T = const Tensor&;
  Operations all{
      {"eq", comparison([](T a, T b) { return eq(a, b); }, [](T a, double b) { return eq(a, b); })},
      {"ne", comparison([](T a, T b) { return ne(a, b); }, [](T a, double b) { return ne(a, b); })},
      {"lt", comparison([](T a, T b) { return lt(a, b); }, [](T a, double b) { return lt(a, b); })},
      {"le", comparison([](T a, T b) { return le(a, b); }, [](T a, double b) { return le(a, b); })},
      {"gt", comparison([](T a, T b) { return gt(a, b); }, [](T a, double b) { return gt(a, b); })},
      {"ge", comparison([](T a, T b) { return ge(a, b); }, [](T a, double b) { return ge(a, b); })},
      {"argmax of all", [](const In& x) { return numbers(argmax(x[0]), x[0]) + zero(x[0]); }},
      {"argmin of all", [](const In& x) { return numbers(argmin(x[0]), x[0]) + zero(x[0]); }},
      {"argmax", [](const In& x) { return numbers(argmax(x[0], 1, true), x[0]) + zero(x[0]); }},
      {"argmin", [](const In& x) { return numbers(argmin(x[0], -1), x[0]) + zero(x[0]); }},
      {"max with places",
       [](const In& x) {
         const MaxResult y = max(x[0], 2);
         return y.values * (numbers(y.indices, x[0]) + 1);
       }},
      {"min with places",
       [](const In& x) {
         const MaxResult y = min(x[0], 1, true);
         return y.values * (numbers(y.indices, x[0]) + 1);
       }},
      {"amax of equals", [](const In& x) { return amax(x[0], 2); }},
      {"amin of equals",
       [](const In& x) {
         return amin(x[0], {0, 1}, true);
       }},
      {"max of all", [](const In& x) { return max(x[0]); }},
      {"min of all", [](const In& x) { return min(x[0]); }},
      {"maximum of equals", [](const In& x) { return maximum(x[0], x[1]); }},
      {"minimum of equals", [](const In& x) { return minimum(x[0], x[1]); }},
      {"clamp from below", [](const In& x) { return clamp(x[0], 0.5); }},
      {"clamp from above", [](const In& x) { return clamp(x[0], {}, 0.5); }},
      {"activations at zero",
       [](const In& x) { return relu(x[0]) + 2 * abs(x[0]) + 3 * leaky_relu(x[0], 0.3) + 4 * elu(x[0], 0.7); }},
      {"std of equals",
       [](const In& x) {
         return lockstep::std(expand(narrow(x[0], 1, 0, 1), {2, 3, 4}), 1) + lockstep::std(x[0], 1);
       }},
  };
  for (const auto& [name, r] :
       {std::pair{"none", Reduction::none}, {"mean", Reduction::mean}, {"sum", Reduction::sum}}) {
    const auto named = [name](const std::string& loss) { return loss + ", " + name; };
    all[named("mse_loss")] = [r](const In& x) { return mse_loss(x[0], x[1], {r}); };
    all[named("l1_loss")] = [r](const In& x) { return l1_loss(x[0], x[1], {r}); };
    all[named("huber_loss")] = [r](const In& x) { return huber_loss(x[0], x[1], {.reduction = r, .delta = 0.5}); };
    all[named("smooth_l1_loss")] = [r](const In& x) {
      return smooth_l1_loss(x[0], x[1], {.reduction = r, .beta = 0.5});
    };
  }
  return all;
}

}  // namespace lockstep::testing
