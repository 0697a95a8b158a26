// Operations compute what PyTorch's of the same names do: tests/parity/operations.json was written by
// tests/parity/operations_reference.py.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/autograd/backward.h"
#include "lockstep/runtime/runtime.h"
#include "tests/logical_tensors.h"
#include "tests/models/operation_cases.h"

namespace lockstep::testing {

Tensor ids(const Tensor& like, const Shape& shape) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < shape.numel(); ++i) values.push_back((i * i + 1) % 3);
  return Tensor::from(values, shape).to(like.device());
}

namespace {

Operations first_operations() {
  return {
      {"abs", [](const In& x) { return abs(x[0]); }},
      {"sign", [](const In& x) { return sign(x[0]); }},
      {"reciprocal", [](const In& x) { return reciprocal(x[0]); }},
      {"rsqrt", [](const In& x) { return rsqrt(x[0] * x[0] + 0.5); }},
      {"sin", [](const In& x) { return sin(x[0]); }},
      {"cos", [](const In& x) { return cos(x[0]); }},
      {"leaky_relu", [](const In& x) { return leaky_relu(x[0]); }},
      {"elu", [](const In& x) { return elu(x[0]); }},
      {"gelu", [](const In& x) { return gelu(x[0]); }},
      {"silu", [](const In& x) { return silu(x[0]); }},
      {"softplus", [](const In& x) { return softplus(x[0]); }},
      {"softplus of beta", [](const In& x) { return softplus(x[0], 3, 1); }},
      {"clamp", [](const In& x) { return clamp(x[0], -0.5, 0.7); }},
      {"pow", [](const In& x) { return pow(x[0], 3) + pow(2, x[0]); }},
      {"pow of tensors", [](const In& x) { return pow(abs(x[0]), x[1]); }},
      {"maximum", [](const In& x) { return maximum(x[0], x[1]); }},
      {"minimum", [](const In& x) { return minimum(x[0], x[1]); }},
      {"where", [](const In& x) { return where(gt(x[0], x[1]), x[0] * x[0], x[1]); }},
      {"masked_fill", [](const In& x) { return masked_fill(x[0], le(x[0], 0), -2); }},
      {"sum",
       [](const In& x) {
         return sum(x[0], {0, -1});
       }},
      {"mean", [](const In& x) { return mean(x[0], 1, true); }},
      {"var", [](const In& x) { return var(x[0], 1); }},
      {"var without correction",
       [](const In& x) {
         return var(x[0], {0, 2}, {.correction = 0, .keepdim = true});
       }},
      {"std", [](const In& x) { return lockstep::std(x[0], -1); }},
      {"amax", [](const In& x) { return amax(x[0], 1); }},
      {"amin",
       [](const In& x) {
         return amin(x[0], {0, 1}, true);
       }},
      {"max", [](const In& x) { return max(x[0], 2).values; }},
      {"min", [](const In& x) { return min(x[0], 0, true).values; }},
      {"logsumexp",
       [](const In& x) {
         return logsumexp(x[0], {0, 2});
       }},
      {"cumsum", [](const In& x) { return cumsum(x[0], 1); }},
      {"permute",
       [](const In& x) {
         return permute(x[0], {2, 0, 1});
       }},
      {"transpose", [](const In& x) { return transpose(x[0], 0, -1); }},
      {"expand",
       [](const In& x) {
         return expand(unsqueeze(x[0], 1), {2, 5, -1, 4});
       }},
      {"squeeze", [](const In& x) { return squeeze(x[0]); }},
      {"flatten", [](const In& x) { return flatten(x[0], 1); }},
      {"narrow", [](const In& x) { return x[0].narrow(2, 1, 2); }},
      {"select", [](const In& x) { return x[0].select(1, -1); }},
      {"slice", [](const In& x) { return slice(x[0], 2, -3, {}, 2); }},
      {"cat",
       [](const In& x) {
         return cat({x[0], x[1]}, -1);
       }},
      {"stack",
       [](const In& x) {
         return stack({x[0], x[1]}, 1);
       }},
      {"split",
       [](const In& x) {
         return split(x[0], {1, 3}, 2)[1];
       }},
      {"chunk", [](const In& x) { return chunk(x[0], 2, 1)[0]; }},
      {"take_along_dim",
       [](const In& x) {
         return take_along_dim(x[0], ids(x[0], {2, 5, 1}), 1);
       }},
      {"gather",
       [](const In& x) {
         return take_along_dim(x[0], ids(x[0], {2, 2, 4}), 1);
       }},
      {"index_select", [](const In& x) { return index_select(x[0], 1, ids(x[0], {6})); }},
      {"scatter_add",
       [](const In& x) {
         return scatter_add(x[0], 1, ids(x[0], {2, 5, 4}), x[1]);
       }},
      {"embedding",
       [](const In& x) {
         return embedding(ids(x[0], {2, 4}), x[0], 1);
       }},
      {"one_hot",
       [](const In& x) {
         return x[0] * cast(one_hot(ids(x[0], {2, 3}), 4), x[0].dtype());
       }},
      {"matmul", [](const In& x) { return matmul(x[0], x[1]); }},
      {"matmul with a matrix", [](const In& x) { return matmul(x[0], x[1]); }},
      {"matmul with a vector", [](const In& x) { return matmul(x[0], x[1]); }},
      {"bmm", [](const In& x) { return bmm(x[0], x[1]); }},
      {"linear", [](const In& x) { return linear(x[0], x[1], x[2]); }},
      {"triu", [](const In& x) { return triu(x[0], 1); }},
      {"tril", [](const In& x) { return tril(x[0]); }},
      {"layer_norm",
       [](const In& x) {
         return layer_norm(x[0], {3, 4}, x[1], x[2]);
       }},
      {"group_norm", [](const In& x) { return group_norm(x[0], 3, x[1], x[2]); }},
      {"softmax", [](const In& x) { return softmax(x[0], 1); }},
      {"log_softmax", [](const In& x) { return log_softmax(x[0], 0); }},
      {"mse_loss", [](const In& x) { return mse_loss(x[0], x[1], {Reduction::sum}); }},
      {"l1_loss", [](const In& x) { return l1_loss(x[0], x[1]); }},
      {"huber_loss", [](const In& x) { return huber_loss(x[0], x[1], {.delta = 0.7}); }},
      {"smooth_l1_loss",
       [](const In& x) { return smooth_l1_loss(x[0], x[1], {.reduction = Reduction::none, .beta = 0.7}); }},
      {"binary_cross_entropy_with_logits",
       [](const In& x) {
         const Tensor weight = exp(x[2]).detach(), pos_weight = exp(x[2] * 2).detach();
         return binary_cross_entropy_with_logits(x[0], sigmoid(x[1]), {.weight = weight, .pos_weight = pos_weight}) +
                sum(x[2]) * 0;
       }},
      {"binary_cross_entropy_with_logits of no weights",
       [](const In& x) {
         return binary_cross_entropy_with_logits(x[0], sigmoid(x[1]), {.reduction = Reduction::none});
       }},
      {"kl_div",
       [](const In& x) { return kl_div(log_softmax(x[0], 1), softmax(x[1], 1), {.reduction = Reduction::batchmean}); }},
      {"kl_div of logarithms", [](const In& x) { return kl_div(x[0], log_softmax(x[1], 1), {.log_target = true}); }},
      {"nll_loss",
       [](const In& x) {
         return nll_loss(x[0], ids(x[0], {2, 4}), {.weight = exp(x[1]).detach()}) + sum(x[1]) * 0;
       }},
      {"nll_loss ignoring",
       [](const In& x) {
         return nll_loss(x[0], ids(x[0], {2, 4}), {.ignore_index = 2, .reduction = Reduction::none});
       }},
      {"cross_entropy", [](const In& x) { return cross_entropy(x[0], ids(x[0], {5})); }},
      {"cross_entropy smoothed",
       [](const In& x) { return cross_entropy(x[0], ids(x[0], {5}), {.label_smoothing = 0.1}); }},
      {"cross_entropy with everything",
       [](const In& x) {
         const CrossEntropyOptions options{.weight = exp(x[1]).detach(), .ignore_index = 2, .label_smoothing = 0.1};
         return cross_entropy(x[0], ids(x[0], {2, 4}), options) + sum(x[1]) * 0;
       }},
      {"cross_entropy ignoring, smoothed",
       [](const In& x) {
         return cross_entropy(x[0], ids(x[0], {2, 4}), {.ignore_index = 2, .label_smoothing = 0.1});
       }},
      {"cross_entropy of probabilities",
       [](const In& x) {
         const CrossEntropyOptions options{.weight = exp(x[2]).detach(), .label_smoothing = 0.1};
         return cross_entropy(x[0], softmax(x[1], 1), options) + sum(x[2]) * 0;
       }},
      {"unbind", [](const In& x) { return unbind(x[0], 1)[2] * unbind(x[0], -3)[0].select(0, 0); }},
      {"unflatten",
       [](const In& x) {
         return unflatten(x[0], 2, {2, 2});
       }},
      {"conv1d",
       [](const In& x) { return conv1d(x[0], x[1], x[2], {.stride = 2, .padding = 1, .dilation = 2, .groups = 2}); }},
      {"conv_transpose2d",
       [](const In& x) {
         return conv_transpose2d(
             x[0], x[1], x[2],
             {.stride = {2, 3}, .padding = {1, 0}, .output_padding = {1, 2}, .groups = 2, .dilation = {2, 1}});
       }},
      {"adaptive_avg_pool2d",
       [](const In& x) {
         return adaptive_avg_pool2d(x[0], {3, 4});
       }},
      {"adaptive_avg_pool2d evenly",
       [](const In& x) {
         return adaptive_avg_pool2d(x[0], {3, -1});
       }},
      {"interpolate",
       [](const In& x) {
         return interpolate(x[0], {.size = {{5, 2}}});
       }},
      {"interpolate by a factor", [](const In& x) { return interpolate(x[0], {.scale_factor = 1.5}); }},
      {"interpolate bilinear",
       [](const In& x) {
         return interpolate(x[0], {.size = {{7, 3}}, .mode = Interpolation::bilinear});
       }},
      {"interpolate bilinear by a factor",
       [](const In& x) { return interpolate(x[0], {.scale_factor = 1.7, .mode = Interpolation::bilinear}); }},
      {"interpolate bilinear with corners", [](const In& x) {
         return interpolate(x[0], {.size = {{7, 1}}, .mode = Interpolation::bilinear, .align_corners = true});
       }}};
}

Operations all_operations() {
  Operations all = first_operations();
  all.merge(more_operations());
  all.merge(later_operations());
  all.merge(operations_with_ties());
  all.merge(function_operations());
  return all;
}

void expect_as_pytorch(const Runtime& runtime, DType dtype, double tolerance) {
  std::ifstream file(LOCKSTEP_OPERATIONS_FILE);
  const nlohmann::json cases = nlohmann::json::parse(file).at("cases");
  const Operations operations = all_operations();
  ASSERT_EQ(cases.size(), operations.size());
  for (const auto& [name, expected] : cases.items()) {
    SCOPED_TRACE(name);
    In inputs;
    for (const auto& input : expected.at("inputs")) {
      const Shape shape(input.at("shape").get<std::vector<std::int64_t>>());
      inputs.push_back(as_leaf(make_tensor(input.at("values"), shape, runtime.devices()[0], dtype)));
    }
    const Tensor y = operations.at(name)(inputs);
    EXPECT_EQ(y.shape(), Shape(expected.at("shape").get<std::vector<std::int64_t>>()));
    EXPECT_LT(distance(values(y), expected.at("output")), tolerance);
    std::vector<double> weights;
    for (std::int64_t i = 0; i < y.numel(); ++i) weights.push_back(static_cast<double>(i * 7 % 11 - 5) / 5);
    const Tensor seed = make_tensor(weights, y.shape(), runtime.devices()[0], dtype);
    backward({&y, 1}, {&seed, 1});
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_LT(distance(values(inputs[i].grad()), expected.at("gradients").at(i)), tolerance) << "input " << i;
    }
  }
}

TEST(OperationsParity, ReferenceInF64) {
  expect_as_pytorch(Runtime({.serial = true, .reference_backend = true}), DType::f64, 1e-8);
}
TEST(OperationsParity, CpuInF32) { expect_as_pytorch(Runtime({.serial = true}), DType::f32, 2e-6); }

}  // namespace
}  // namespace lockstep::testing
