// Cases of operations.json for functions of numbers, places, and letters: FUNCTIONS of
// tests/parity/operations_reference.py.
#include "tests/models/operation_cases.h"

namespace lockstep::testing {
namespace {

Tensor in_type_of(const Tensor& x, const Tensor& like) { return cast(x, like.dtype()); }
Tensor nothing(const Tensor& x) { return sum(x) * 0; }

// i64 numbers below 3 in x's shape that differ along axis 1.
Tensor turned(const Tensor& x) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < x.size(0); ++i) {
    for (std::int64_t j = 0; j < x.size(1); ++j) {
      for (std::int64_t k = 0; k < x.size(2); ++k) numbers.push_back((i + j + k) % 3);
    }
  }
  return Tensor::from(numbers, x.shape()).to(x.device());
}

}  // namespace

Operations function_operations() {
  return {
      {"expm1", [](const In& x) { return expm1(x[0]); }},
      {"log2", [](const In& x) { return log2(square(x[0]) + 0.5); }},
      {"log10", [](const In& x) { return log10(square(x[0]) + 0.5); }},
      {"tan", [](const In& x) { return tan(x[0] / 3); }},
      {"erf", [](const In& x) { return erf(x[0]); }},
      {"atan2", [](const In& x) { return atan2(x[0], x[1]); }},
      {"whole numbers",
       [](const In& x) {
         return floor(x[0]) + 10 * ceil(x[0]) + 100 * round(x[0] * 2) + 1000 * trunc(x[0]) + nothing(x[0]);
       }},
      {"nan_to_num", [](const In& x) { return nan_to_num(log(x[0]), 0.5, {}, -3); }},
      {"whole quotients",
       [](const In& x) {
         const Tensor y = square(x[1]) + 0.5;
         return div(x[0], y, {.rounding_mode = Rounding::floor}) +
                10 * div(x[0], y, {.rounding_mode = Rounding::trunc}) + div(x[0], 0.3);
       }},
      {"remainder", [](const In& x) { return remainder(x[0], square(x[1]) + 0.5) + remainder(x[0], -0.7); }},
      {"clamp by tensors", [](const In& x) { return clamp(x[0], x[1], x[1] + 0.5) + clamp(x[0], {}, x[1]); }},
      {"masked_fill by a tensor", [](const In& x) { return masked_fill(x[0], gt(x[0], 0), x[1]); }},
      {"cumprod", [](const In& x) { return cumprod(x[0], 1) + cumprod(x[0], -1); }},
      {"median",
       [](const In& x) {
         const MaxResult y = median(x[0], 2);
         return y.values * (in_type_of(y.indices, x[0]) + 1) * median(x[0]);
       }},
      {"std_mean",
       [](const In& x) {
         const StdMean y = std_mean(x[0], {0, 2});
         return y.std * y.mean;
       }},
      {"repeat",
       [](const In& x) {
         return repeat(x[0], {2, 1, 2, 1}) * tile(x[0], {2, 1});
       }},
      {"repeat_interleave", [](const In& x) { return repeat_interleave(x[0], 2, 1); }},
      {"repeat_interleave by numbers", [](const In& x) { return repeat_interleave(x[0], ids(x[0], {3}), 1); }},
      {"flip",
       [](const In& x) {
         return flip(x[0], {0, -1}) * x[0];
       }},
      {"roll",
       [](const In& x) {
         return roll(x[0], {1, -2}, {1, 2}) * roll(x[0], 5);
       }},
      {"movedim",
       [](const In& x) {
         return movedim(x[0], {0, 1}, {-1, 0});
       }},
      {"linspace",
       [](const In& x) { return x[0] * linspace(-1, 2, 4, {.dtype = x[0].dtype(), .device = x[0].device()}); }},
      {"meshgrid",
       [](const In& x) {
         return meshgrid({x[0], x[1]})[0] * meshgrid({x[1], x[0]}, GridIndexing::xy)[0];
       }},
      {"einsum",
       [](const In& x) {
         return einsum("bij,bkj->kib", {x[0], x[1]});
       }},
      {"einsum of three",
       [](const In& x) {
         return einsum("bij,jk,i", {x[0], x[1], x[2]});
       }},
      {"einsum with an ellipsis",
       [](const In& x) {
         return einsum("...i,...i->...", {x[0], x[1]}) + einsum("ii...->...", {x[2]});
       }},
      {"normalize", [](const In& x) { return normalize(x[0]) + normalize(x[0], 1, -1); }},
      {"cosine_similarity", [](const In& x) { return cosine_similarity(x[0], x[1], -1); }},
      {"pairwise_distance", [](const In& x) { return pairwise_distance(x[0], x[1]); }},
      {"cdist", [](const In& x) { return cdist(x[0], x[1]) + cdist(x[0], x[1], 1); }},
      {"outer, mv, dot", [](const In& x) { return outer(mv(x[0], x[1]), x[1]) * dot(x[1], x[1]); }},
      {"mm", [](const In& x) { return mm(x[0], x[1]); }},
      {"scatter", [](const In& x) { return scatter(x[0], 1, turned(x[0]), x[1]); }},
      {"scatter of a number",
       [](const In& x) {
         return scatter(x[0], 1, ids(x[0], {2, 1, 3}), 0.5);
       }},
      {"gather of a smaller index",
       [](const In& x) {
         return gather(x[0], 1, ids(x[0], {1, 5, 2}));
       }},
      {"index_add", [](const In& x) { return index_add(x[0], 1, ids(x[0], {5}), x[1], 0.5); }},
      {"masked_select", [](const In& x) { return masked_select(x[0], gt(x[0], 0)); }},
      {"nonzero", [](const In& x) { return in_type_of(nonzero(gt(x[0], 0)), x[0]) + nothing(x[0]); }},
      {"bincount", [](const In& x) { return in_type_of(bincount(ids(x[0], {9})), x[0]) * x[0]; }},
      {"whole sums and orders",
       [](const In& x) {
         const Tensor n = ids(x[0], {3, 4});
         const Tensor all = sum(n, 0) + 10 * amax(n, 0) + 100 * argmin(n, 0) + 1000 * cumsum(n, 0).select(0, 1) +
                            10000 * sort(n, 0).values.select(0, 2) + 100000 * prod(n + 1, 0);
         return in_type_of(all, x[0]) * x[0];
       }},
      {"cummax",
       [](const In& x) {
         const MaxResult y = cummax(x[0], 1);
         return y.values * (in_type_of(y.indices, x[0]) + 1);
       }},
      {"cummin",
       [](const In& x) {
         const MaxResult y = cummin(x[0], -1);
         return y.values * (in_type_of(y.indices, x[0]) + 1);
       }},
      {"cummax of equals",
       [](const In& x) {
         const MaxResult y = cummax(x[0], 2), z = cummin(x[0], 2);
         return y.values * (in_type_of(y.indices, x[0]) + 1) + z.values * (in_type_of(z.indices, x[0]) + 1);
       }},
      {"add and sub of multiples", [](const In& x) { return add(x[0], x[1], 0.5) * sub(x[0], x[1], 2); }},
      {"embedding_bag",
       [](const In& x) {
         const Tensor n = ids(x[0], {4, 3});
         return embedding_bag(n, x[0]) +
                embedding_bag(n, x[0], {.mode = BagMode::sum}) * embedding_bag(n, x[0], {.mode = BagMode::max});
       }},
      {"embedding_bag with padding",
       [](const In& x) {
         const Tensor n = ids(x[0], {4, 3});
         return embedding_bag(n, x[0], {.padding_idx = 1}) +
                embedding_bag(n, x[0], {.mode = BagMode::max, .padding_idx = 2});
       }},
      {"embedding_bag of weights",
       [](const In& x) {
         return embedding_bag(ids(x[0], {4, 3}), x[0], {.mode = BagMode::sum, .per_sample_weights = x[1]});
       }},
      {"max_pool3d",
       [](const In& x) {
         return max_pool3d(x[0],
                           {.kernel_size = {2, 3, 2}, .stride = {1, 2, 2}, .padding = {1, 1, 0}, .ceil_mode = true});
       }},
      {"avg_pool3d",
       [](const In& x) {
         Pool3dOptions o{.kernel_size = 2, .stride = {1, 2, 2}, .padding = {1, 0, 1}};
         const Tensor y = avg_pool3d(x[0], o);
         o.count_include_pad = false;
         return y + avg_pool3d(x[0], o);
       }},
      {"avg_pool3d, ceil_mode",
       [](const In& x) {
         return avg_pool3d(x[0], {.kernel_size = {2, 3, 3}, .stride = 2, .padding = {1, 1, 0}, .ceil_mode = true});
       }},
      {"adaptive pools of volumes",
       [](const In& x) {
         return adaptive_avg_pool3d(x[0], {2, 3, 1}) * adaptive_max_pool3d(x[0], {2, 3, 1});
       }},
      {"grid_sample", [](const In& x) { return grid_sample(x[0], x[1]); }},
      {"grid_sample with corners",
       [](const In& x) {
         return grid_sample(x[0], x[1], {.padding_mode = GridPadding::border, .align_corners = true});
       }},
      {"grid_sample of the nearest",
       [](const In& x) { return grid_sample(x[0], x[1], {.mode = Interpolation::nearest}) + nothing(x[1]); }},
      {"whole sums at places",
       [](const In& x) {
         const Tensor few = ids(x[0], {2, 4}), many = ids(x[0], {5, 4}), n = ids(x[0], {3, 4});
         const Tensor all = scatter_add(n, 0, few, few - 0x1p40) + index_add(n, 0, ids(x[0], {5}), many, 3);
         return x[0] * in_type_of(all, x[0]);
       }},
      {"unique slices",
       [](const In& x) {
         const Tensor column = narrow(x[0], 1, 0, 1);
         const UniqueResult y = unique(repeat(column, {4, 1}), 0);
         return y.values * in_type_of(unsqueeze(y.counts, 1), x[0]) + sum(in_type_of(y.inverse, x[0])) + nothing(x[0]);
       }},
      {"types that differ",
       [](const In& x) {
         const Tensor a = ids(x[0], {3, 4}), b = ids(x[0], {4});
         return (x[0] + a) * (x[0] > 0) - a / 4 + (3 - x[0]) / (b + 1) + where(x[0] > 0.5, b, x[0]);
       }},
      {"extremes of types that differ",
       [](const In& x) {
         const Tensor a = ids(x[0], {3, 4}), b = ids(x[0], {4});
         return maximum(x[0], a) + clamp(x[0], b - 1, b) + remainder(x[0], a + 1) + add(b, x[0], 0.5);
       }},
      {"comparisons of types that differ",
       [](const In& x) {
         const Tensor b = ids(x[0], {4});
         return x[0] * (x[0] < ids(x[0], {3, 4})) + (b == (b > 1)) + sqrt(b * 2 + (b > 1) * b) + abs(b - 2) * x[0];
       }},
      {"embedding_bag at offsets",
       [](const In& x) {
         const Tensor n = ids(x[0], {9});
         const auto at = [](const std::vector<std::int64_t>& offsets) { return Tensor::from(offsets, {4}); };
         return embedding_bag(n, x[0], {.offsets = at({0, 4, 4, 6})}) +
                embedding_bag(n, x[0], {.mode = BagMode::sum, .offsets = at({0, 1, 5, 6})}) *
                    embedding_bag(n, x[0], {.mode = BagMode::max, .offsets = at({0, 1, 5, 5})});
       }},
      {"embedding_bag at offsets with padding",
       [](const In& x) {
         const Tensor n = ids(x[0], {9});
         const Tensor limits = Tensor::from(std::vector<std::int64_t>{0, 2, 5, 9}, {4});
         const Tensor offsets = Tensor::from(std::vector<std::int64_t>{0, 1, 5}, {3}).to(x[0].device());
         return embedding_bag(n, x[0], {.padding_idx = 1, .offsets = limits, .include_last_offset = true}) +
                embedding_bag(n, x[0], {.mode = BagMode::max, .padding_idx = -1, .offsets = offsets});
       }},
      {"embedding_bag at offsets of weights",
       [](const In& x) {
         return embedding_bag(ids(x[0], {9}), x[0],
                              {.mode = BagMode::sum,
                               .per_sample_weights = x[1],
                               .offsets = Tensor::from(std::vector<std::int64_t>{0, 4, 6}, {3})});
       }},
      {"softmax in f64", [](const In& x) { return in_type_of(softmax(x[0], 1, DType::f64), x[0]); }},
      {"unique",
       [](const In& x) {
         const UniqueResult y = unique(x[0]);
         return y.values + 10 * in_type_of(y.counts, x[0]) + sum(in_type_of(y.inverse, x[0])) + nothing(x[0]);
       }},
  };
}

}  // namespace lockstep::testing
