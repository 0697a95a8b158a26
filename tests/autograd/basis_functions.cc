// The basis of operations, family by family: see autograd/functions.h.
#include <cmath>

#include "tests/autograd/gradient_testing.h"

namespace lockstep::testing {
namespace {

using In = std::span<const Tensor>;

Shape any_shape(Random& r) { return {r.integer(1, 3), r.integer(2, 4), r.integer(2, 3)}; }

// A function of one tensor of three axes.
Differentiable of_one(std::string name, std::function<Tensor(const Tensor&)> f, Input input = {}) {
  return {std::move(name), [=](Random& r) {
            Input x = input;
            x.shape = any_shape(r);
            return Problem{{x}, [f](In in) { return f(in[0]); }};
          }};
}

// The second operand is broadcast in a random way, or the first one is.
Differentiable of_two(std::string name, std::function<Tensor(const Tensor&, const Tensor&)> f, double low,
                      double high) {
  return {std::move(name), [=](Random& r) {
            Shape full = any_shape(r), part = r.integer(0, 1) ? Shape{full[1], full[2]} : full;
            for (int i = 0; i < part.dim(); ++i) {
              if (r.integer(0, 2) == 0) part[i] = 1;
            }
            const bool swap = r.integer(0, 1) == 1;
            return Problem{{{.shape = swap ? part : full, .low = low, .high = high},
                            {.shape = swap ? full : part, .low = low, .high = high}},
                           [f](In in) { return f(in[0], in[1]); }};
          }};
}

Tensor numbers(const std::vector<std::int64_t>& values, const Shape& shape, Device device) {
  return Tensor::from(values, shape).to(device);
}

// i64 numbers in [0, end), the same in every call.
Tensor some_numbers(const Shape& shape, std::int64_t end, Device device) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < shape.numel(); ++i) values.push_back((i * i + 3 * i + 1) % end);
  return numbers(values, shape, device);
}

std::vector<Differentiable> basis_elementwise() {
  return {
      of_one("Sign", [](const Tensor& x) { return sign(x) * x; }, {.away_from_zero = true}),
      of_one("Reciprocal", reciprocal, {.low = 0.5, .high = 2}),
      of_one("Rsqrt", rsqrt, {.low = 0.5, .high = 2}),
      of_one("Log1p", log1p, {.low = -0.8, .high = 2}),
      of_one("Sin", sin, {.low = -4, .high = 4}),
      of_one("Expm1", expm1),
      of_one("LogarithmsOfOtherBases", [](const Tensor& x) { return log2(x) + square(log10(x)); },
             {.low = 0.5, .high = 2}),
      of_one("Tan", tan),
      of_one("Erf", erf, {.low = -2, .high = 2}),
      of_one("RoundedNumbers",
             [](const Tensor& x) {
               return (floor(x * 2.9) + ceil(x * 2.9)) * x + round(x * 3.1) * square(x) + trunc(x * 2.9);
             },
             {.away_from_zero = true}),
      of_one("NanToNum",
             [](const Tensor& x) { return square(nan_to_num(where(gt(x, 0.5), NAN, x), 0.5)) + nan_to_num(x); }),
      of_two(
          "Atan2", [](const Tensor& a, const Tensor& b) { return atan2(a, b); }, 0.5, 2),
      of_two(
          "WholeQuotients",
          [](const Tensor& a, const Tensor& b) {
            return div(a, b, {.rounding_mode = Rounding::floor}) * a +
                   div(a, b, {.rounding_mode = Rounding::trunc}) * b + div(a, b);
          },
          0.5, 2),
      of_two(
          "Remainder", [](const Tensor& a, const Tensor& b) { return square(remainder(a + 2, b)) + remainder(a, 0.7); },
          0.5, 2),
      of_two(
          "ClampByTensors",
          [](const Tensor& a, const Tensor& b) {
            return square(clamp(a, b, b * b + 0.3)) + clamp(a * 2, {}, b) * clamp(a, b * 0.5, {});
          },
          -1, 1),
      {"MaskedFillByATensor",
       [](Random& r) {
         return Problem{{{.shape = any_shape(r)}, {.shape = {}}},
                        [](In in) { return square(masked_fill(in[0], gt(in[0], 0.2), in[1])); }};
       }},
      of_one("Cos", cos, {.low = -4, .high = 4}),
      of_one("LeakyRelu", [](const Tensor& x) { return leaky_relu(x, 0.3); }, {.away_from_zero = true}),
      of_one("Elu", [](const Tensor& x) { return elu(x, 1.5); }, {.away_from_zero = true}),
      of_one("GeluByTanh", [](const Tensor& x) { return gelu(x, {.approximate = GeluApproximation::tanh}); },
             {.low = -3, .high = 3}),
      of_one("Silu", silu, {.low = -3, .high = 3}),
      of_one("Softplus", [](const Tensor& x) { return softplus(x); }, {.low = -3, .high = 3}),
      of_one("SoftplusOfAnotherSteepness", [](const Tensor& x) { return softplus(x, 2, 30); }, {.low = -3, .high = 3}),
      of_one("Clamp", [](const Tensor& x) { return clamp(x * x, 0.005, {}) + clamp(x, -2, 2); },
             {.away_from_zero = true}),
      of_one("PowerOfAScalar", [](const Tensor& x) { return pow(x, 2.5) + pow(x, -1) + pow(x, 0); },
             {.low = 0.5, .high = 2}),
      of_two(
          "Power", [](const Tensor& a, const Tensor& b) { return pow(a, b); }, 0.5, 2),
      of_one("PowerOfABase", [](const Tensor& x) { return pow(3, x); }),
      of_two("Maximum", maximum, -1, 1),
      of_two("Minimum", minimum, -1, 1),
      of_two(
          "Where", [](const Tensor& a, const Tensor& b) { return where(gt(a.detach(), b.detach()), square(a), b); }, -1,
          1),
      of_one("WhereWithScalars",
             [](const Tensor& x) { return where(gt(x, 0), square(x), -1.0) + masked_fill(x * 3, le(x, -0.5), 2); },
             {.away_from_zero = true})};
}

std::vector<Differentiable> basis_reductions() {
  const auto any_dims = [](const std::function<Tensor(const Tensor&, const Dims&, bool)>& f) {
    return [f](Random& r) {
      const std::vector<Dims> all{{0}, {1}, {-1}, {0, 2}, {1, -1}, {}, {0, 1, 2}};
      const Dims dims = all[static_cast<std::size_t>(r.integer(0, std::ssize(all) - 1))];
      const bool keepdim = r.integer(0, 1) == 1;
      return Problem{{{.shape = {r.integer(2, 3), r.integer(2, 4), r.integer(2, 3)}}},
                     [=](In in) { return f(in[0], dims, keepdim); }};
    };
  };
  return {
      {"SumOverAxes", any_dims([](const Tensor& x, const Dims& d, bool k) { return square(sum(x, d, k)); })},
      {"MeanOverAxes", any_dims([](const Tensor& x, const Dims& d, bool k) { return square(mean(x, d, k)); })},
      {"Var", any_dims([](const Tensor& x, const Dims& d, bool k) { return var(x, d, {.keepdim = k}); })},
      {"VarWithoutCorrection",
       any_dims([](const Tensor& x, const Dims& d, bool k) { return var(x, d, {.correction = 0, .keepdim = k}); })},
      {"StdOfEqualElements", any_dims([](const Tensor& x, const Dims& d, bool k) {
         // 0, with a gradient of 0, beside one that is above 0.
         return lockstep::std(x * 0 + 2, d, {.correction = 0, .keepdim = k}) + square(sum(x, d, k));
       })},
      {"Std", any_dims([](const Tensor& x, const Dims& d, bool k) { return lockstep::std(x, d, {.keepdim = k}); })},
      {"Amax", any_dims([](const Tensor& x, const Dims& d, bool k) { return square(amax(x, d, k)); })},
      {"Amin", any_dims([](const Tensor& x, const Dims& d, bool k) { return square(amin(x, d, k)); })},
      {"Logsumexp", any_dims([](const Tensor& x, const Dims& d, bool k) { return logsumexp(x * 3, d, k); })},
      {"Norm", any_dims([](const Tensor& x, const Dims& d, bool k) { return norm(x + 2, 2, d, k); })},
      {"NormsOfOtherPowers", any_dims([](const Tensor& x, const Dims& d, bool k) {
         return norm(x + 2, 1, d, k) + norm(x - 2, 2.5, d, k) + norm(x, HUGE_VAL, d, k);
       })},
      of_one("NormOfZeros", [](const Tensor& x) { return norm(x * 0, 2, 1) + x.select(1, 0); }),
      of_one("Prod", [](const Tensor& x) { return prod(x, 1) + prod(x, -1, true).narrow(1, 0, 1).select(2, 0); }),
      of_one("ProdWithZeros",
             [](const Tensor& x) {
               return prod(cat({x, x * 0}, 1), 1) + x.select(1, 0);
             }),
      of_one("ProdOfAll", [](const Tensor& x) { return prod(x); }, {.low = 0.8, .high = 1.2}),
      of_one("MaxOfAll", [](const Tensor& x) { return max(x) * min(x); }),
      of_one("MaxAlongAnAxis", [](const Tensor& x) { return square(max(x, 1).values) + min(x, -2, false).values; }),
      of_one("RunningExtremes",
             [](const Tensor& x) { return square(cummax(x, 1).values) + cummin(x, -1).values * cummax(x, 0).values; }),
      of_one("Clone", [](const Tensor& x) { return square(clone(x)) + sub(x, clone(x), 3) * x; }),
      of_one("Cumprod", [](const Tensor& x) { return square(cumprod(x, 1)) + cumprod(x, -1) * cumprod(x + 1, 0); }),
      of_one("CumprodOfZeros",
             [](const Tensor& x) {
               return cumprod(cat({x, x * 0, x}, 1), 1);
             }),
      {"StdAndMean", any_dims([](const Tensor& x, const Dims& d, bool k) {
         const StdMean y = std_mean(x, d, {.keepdim = k});
         const VarMean z = var_mean(x, d, {.keepdim = k});
         return y.std * y.mean + z.var * z.mean;
       })},
      of_one("Median", [](const Tensor& x) { return square(median(x, 1).values) * median(x) + median(x, -2).values; }),
      of_one("Cumsum", [](const Tensor& x) { return square(cumsum(x, 1)) + cumsum(x, -1) * cumsum(x, 0); })};
}

std::vector<Differentiable> basis_shapes() {
  return {
      of_one("Permute",
             [](const Tensor& x) {
               return square(permute(x, {2, 0, -2}));
             }),
      of_one("TransposeFromTheEnd", [](const Tensor& x) { return square(transpose(x, -1, -3)); }),
      of_one("Expand",
             [](const Tensor& x) {
               return square(expand(unsqueeze(x, 1), {2, x.size(0), 3, -1, x.size(2)}));
             }),
      of_one("SqueezeAndUnsqueeze",
             [](const Tensor& x) {
               return square(squeeze(unsqueeze(unsqueeze(x, -1), 0))) + squeeze(unsqueeze(x, 1), 1);
             }),
      of_one("FlattenSomeAxes",
             [](const Tensor& x) {
               return square(flatten(x, 1, 2)) + flatten(flatten(x), 0).reshape({x.size(0), -1});
             }),
      of_one("Narrow",
             [](const Tensor& x) { return square(x.narrow(1, 1, 1)) + x.narrow(-2, 0, 1) * x.narrow(1, -1, 1); }),
      of_one("Select", [](const Tensor& x) { return square(x.select(1, 0)) * x.select(-2, -1) + select(x, 1, 1); }),
      of_one("Slice", [](const Tensor& x) { return square(slice(x, 1, {}, {}, 2)).narrow(1, 0, 1) + slice(x, 1, -1); }),
      of_one("SplitAndCat",
             [](const Tensor& x) {
               const auto parts = split(x, {1, x.size(1) - 1}, 1);
               return square(cat({parts[1], x, parts[0]}, 1)) + cat({x, square(x)}, -2);
             }),
      of_one("SplitByOneSize",
             [](const Tensor& x) {
               Tensor all;
               for (const Tensor& part : split(x, 1, -1)) all = all.defined() ? all * part : part;
               return all;
             }),
      of_one("ChunkAndStack",
             [](const Tensor& x) {
               const auto halves = chunk(cat({x, square(x)}, 0), 2);
               return stack({halves[1], halves[0], x}, 1) * stack({x, halves[1], halves[1]}, -3);
             }),
      of_one("Pad",
             [](const Tensor& x) {
               return square(pad(x, {1, 2, 0, 3}, 0.5)) + pad(x, {2, 1, 3, 0});
             }),
      of_one("PadByNegativeWidths",
             [](const Tensor& x) {
               return square(pad(x, {-1, 2, 1, -1, 0, 1}));
             }),
      of_one("Repeat",
             [](const Tensor& x) {
               return square(repeat(x, {2, 1, 2, 3})) + tile(x, {2, 3});
             }),
      of_one(
          "RepeatInterleave",
          [](const Tensor& x) {
            const Tensor all = repeat_interleave(x, 2);
            return square(repeat_interleave(x, 3, 1)) + reshape(all, {1, -1}).narrow(1, 1, 2).reshape({2}).select(0, 0);
          }),
      of_one("Flip",
             [](const Tensor& x) {
               return square(flip(x, {0, -1})) * 2 + flip(x, 1) + flip(x, {});
             }),
      of_one("Roll",
             [](const Tensor& x) {
               return square(roll(x, 1, -1)) + roll(x, {-1, 4}, {0, 1}) * roll(x, 2) + roll(x, 0, 0);
             }),
      of_one("Movedim",
             [](const Tensor& x) {
               return square(movedim(x, 0, -1)) * movedim(x, {0, 1}, {2, 0});
             }),
      {"Meshgrid",
       [](Random& r) {
         return Problem{{{.shape = {r.integer(1, 3)}}, {.shape = {r.integer(2, 4)}}, {.shape = {}}}, [](In in) {
                          const auto grid = meshgrid(in), image = meshgrid({in[1], in[0]}, GridIndexing::xy);
                          return grid[0] * grid[1] + square(grid[2]) + unsqueeze(image[0] * square(image[1]), 2);
                        }};
       }},
      of_one("Triangles",
             [](const Tensor& x) { return square(triu(x, 1)) + tril(x * 3) + tril(x, -1) * triu(x, -1); })};
}

std::vector<Differentiable> basis_indices() {
  return {
      of_one("TakeAlongDim",
             [](const Tensor& x) {
               const Tensor all = some_numbers({x.size(0), 5, x.size(2)}, x.size(1), x.device());
               const Tensor one = some_numbers({1, 4, 1}, x.size(1), x.device());
               return cat({square(take_along_dim(x, all, 1)), take_along_dim(x * 2, one, -2)}, 1);
             }),
      of_one("IndexSelect",
             [](const Tensor& x) { return square(index_select(x, 1, some_numbers({6}, x.size(1), x.device()))); }),
      of_one("Sort", [](const Tensor& x) { return square(sort(x, 1).values) * 3 + sort(x, 1, true).values; }),
      of_one("Topk", [](const Tensor& x) { return square(topk(x, 2).values) + topk(x, 2, -1, false).values; }),
      of_one("GatherBySmallerIndex",
             [](const Tensor& x) {
               return square(gather(x, 1, some_numbers({1, 5, 2}, x.size(1), x.device()))) +
                      gather(x * 2, -1, some_numbers({x.size(0), 1, 1}, x.size(2), x.device()));
             }),
      {"Scatter",
       [](Random& r) {
         // Some numbers are equal. The index may be shorter than both others.
         const Shape x = any_shape(r), src{x[0], 6, x[2]}, places = r.integer(0, 1) ? src : Shape{1, 5, 1};
         return Problem{{{.shape = x}, {.shape = src}}, [=](In in) {
                          const Tensor index = some_numbers(places, x[1], in[0].device());
                          return square(scatter(in[0], 1, index, in[1])) + scatter(in[0] * 3, 1, index, 0.5);
                        }};
       }},
      {"IndexAdd",
       [](Random& r) {
         const Shape x = any_shape(r), src{x[0], 5, x[2]};
         return Problem{{{.shape = x}, {.shape = src}}, [=](In in) {
                          const Tensor index = some_numbers({5}, x[1], in[0].device());
                          return square(index_add(in[0], 1, index, in[1])) + index_add(in[0], -2, index, in[1], -2);
                        }};
       }},
      of_one("MaskedSelect",
             [](const Tensor& x) {
               const Tensor mask = ne(some_numbers({x.size(1), 1}, 3, x.device()), 1);
               return square(masked_select(x, mask));
             }),
      of_one("RepeatInterleaveByATensor",
             [](const Tensor& x) { return square(repeat_interleave(x, some_numbers({x.size(1)}, 3, x.device()), 1)); }),
      {"Embedding",
       [](Random&) {
         return Problem{{{.shape = {5, 3}}}, [](In in) {
                          return square(embedding(some_numbers({2, 4}, 5, in[0].device()), in[0]));
                        }};
       }},
      {"ScatterAdd", [](Random& r) {
         // The index may be shorter than both others.
         const Shape x = any_shape(r), src{x[0], 6, x[2]}, places = r.integer(0, 1) ? src : Shape{1, 5, 1};
         return Problem{{{.shape = x}, {.shape = src}}, [=](In in) {
                          const Tensor index = some_numbers(places, x[1], in[0].device());
                          return square(scatter_add(in[0], 1, index, in[1]));
                        }};
       }}};
}

std::vector<Differentiable> basis_products() {
  const auto of_shapes = [](std::string name, std::vector<std::pair<Shape, Shape>> cases) {
    return Differentiable{std::move(name), [=](Random& r) {
                            const auto& [a, b] = cases[static_cast<std::size_t>(r.integer(0, std::ssize(cases) - 1))];
                            return Problem{{{.shape = a}, {.shape = b}}, [](In in) { return matmul(in[0], in[1]); }};
                          }};
  };
  return {
      of_shapes("BatchesOfMatrices", {{{3, 2, 4}, {3, 4, 5}}, {{2, 3, 2, 4}, {2, 3, 4, 1}}}),
      of_shapes("BatchesBroadcast",
                {{{3, 2, 4}, {4, 5}}, {{2, 4}, {3, 4, 5}}, {{2, 1, 3, 4}, {5, 4, 2}}, {{1, 2, 3}, {4, 3, 2}}}),
      of_shapes("Vectors", {{{4}, {4}}, {{4}, {4, 3}}, {{2, 4}, {4}}, {{3, 2, 4}, {4}}, {{4}, {3, 4, 2}}}),
      {"Bmm",
       [](Random& r) {
         const std::int64_t n = r.integer(1, 3), k = r.integer(1, 4);
         return Problem{{{.shape = {n, 2, k}}, {.shape = {n, k, 3}}}, [](In in) { return bmm(in[0], in[1]); }};
       }},
      {"ProductsOfVectors",
       [](Random& r) {
         const std::int64_t k = r.integer(1, 4);
         return Problem{{{.shape = {k}}, {.shape = {3, k}}, {.shape = {k, 2}}}, [](In in) {
                          return outer(mv(in[1], in[0]), in[0]) * dot(in[0], in[0]) +
                                 mm(in[1], in[2]).select(1, 0).reshape({3, 1});
                        }};
       }},
      {"Einsum",
       [](Random& r) {
         const std::int64_t b = r.integer(1, 3), i = r.integer(1, 3), j = r.integer(2, 3), k = r.integer(1, 3);
         return Problem{{{.shape = {b, i, j}}, {.shape = {b, j, k}}, {.shape = {j, j}}}, [](In in) {
                          return einsum("bij,bjk->kbi", {in[0], in[1]}) +
                                 einsum("b i j, bjk, jj -> k b i", {in[0], in[1], in[2]}) *
                                     einsum("bjk->kb", {in[1]}).reshape({in[1].size(2), -1, 1});
                        }};
       }},
      {"EinsumWithEllipsis",
       [](Random& r) {
         const std::int64_t n = r.integer(2, 3);
         return Problem{{{.shape = {2, n, 3}}, {.shape = {n, 3, 4}}, {.shape = {1, 4}}}, [](In in) {
                          return einsum("...ij,j...k,...k->i...k",
                                        {transpose(in[0], 0, 1), transpose(in[1], 0, 1), in[2]}) +
                                 einsum("i,j", {in[0].select(2, 0).select(0, 1), in[2].select(0, 0)})
                                     .reshape({1, -1, 4})
                                     .narrow(1, 0, 1);
                        }};
       }},
      of_one("Normalize",
             [](const Tensor& x) { return normalize(x + 2) + normalize(x, 1, -1) * normalize(x * 0 + 1, 3, 0); },
             {.away_from_zero = true}),
      of_two(
          "CosineSimilarity",
          [](const Tensor& a, const Tensor& b) {
            return cosine_similarity(unsqueeze(a, 0), unsqueeze(b, 0), -1) + pairwise_distance(a, b + 3);
          },
          0.5, 2),
      {"Cdist",
       [](Random& r) {
         return Problem{{{.shape = {2, r.integer(1, 3), 3}}, {.shape = {r.integer(1, 4), 3}}},
                        [](In in) { return cdist(in[0], in[1] + 3) * cdist(in[0], in[1], 1); }};
       }},
      {"LinearOfSteps",
       [](Random& r) {
         return Problem{
             {{.shape = {r.integer(1, 3), 2, 4}}, {.shape = {3, 4}, .master = true}, {.shape = {3}, .master = true}},
             [](In in) { return linear(in[0], in[1], in[2]); }};
       }},
      {"LayerNorm",
       [](Random& r) {
         const Shape last{r.integer(2, 3), 4};
         return Problem{{{.shape = {3, last[0], 4}}, {.shape = last, .master = true}, {.shape = last, .master = true}},
                        [=](In in) { return layer_norm(in[0] * 2, last, in[1], in[2]); }};
       }},
      {"RmsNormWithWeight",
       [](Random& r) {
         const Shape last{r.integer(2, 3), 4};
         return Problem{{{.shape = {3, last[0], 4}}, {.shape = last, .master = true}},
                        [=](In in) { return rms_norm(in[0] * 2, last, in[1]); }};
       }},
      of_one("RmsNorm",
             [](const Tensor& x) {
               return rms_norm(x, {x.size(2)}) * rms_norm(x, {x.size(1), x.size(2)}, {}, 0.1);
             }),
      {"GroupNorm",
       [](Random& r) {
         return Problem{
             {{.shape = {2, 4, r.integer(2, 3)}}, {.shape = {4}, .master = true}, {.shape = {4}, .master = true}},
             [](In in) { return group_norm(in[0] * 2, 2, in[1], in[2]); }};
       }},
      of_one("SoftmaxAlongAnyAxis", [](const Tensor& x) { return softmax(x, 0) + softmax(x * 2, 1) * softmax(x, -1); }),
      of_one("LogSoftmaxAlongAnyAxis", [](const Tensor& x) { return log_softmax(x, 0) * log_softmax(x, -2); })};
}

}  // namespace

std::vector<Differentiable> basis_functions() {
  std::vector<Differentiable> all;
  for (auto part : {basis_elementwise(), basis_reductions(), basis_shapes(), basis_indices(), basis_products()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace lockstep::testing
