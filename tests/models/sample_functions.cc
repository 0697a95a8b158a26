#include "tests/models/sample_functions.h"

#include <cmath>
#include <limits>

namespace lockstep::testing {

double sample_number(const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (!value.is_string()) return value.get<double>();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  return value == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

double SampleCall::number(const char* name) const { return sample_number(a.at(name)); }

std::optional<std::int64_t> SampleCall::optional(const char* name) const {
  return a.at(name).is_null() ? std::nullopt : std::optional(a.at(name).get<std::int64_t>());
}

Reduction SampleCall::reduction() const {
  const std::string name = a.at("reduction");
  return name == "none"   ? Reduction::none
         : name == "sum"  ? Reduction::sum
         : name == "mean" ? Reduction::mean
                          : Reduction::batchmean;
}

namespace {

using Call = SampleCall;
using Results = std::vector<Tensor>;

std::optional<double> bound(const Call& c, const char* name) {
  return c.a.at(name).is_null() ? std::nullopt : std::optional(c.number(name));
}

HeightWidth both(const Call& c, const char* name) {
  const auto pair = c.a.at(name).get<std::vector<std::int64_t>>();
  return {pair.at(0), pair.at(1)};
}

Conv1dOptions conv1d_options(const Call& c) {
  return {.stride = c.integer("stride"),
          .padding = c.integer("padding"),
          .dilation = c.integer("dilation"),
          .groups = c.integer("groups")};
}
Conv2dOptions conv2d_options(const Call& c) {
  return {.stride = both(c, "stride"),
          .padding = both(c, "padding"),
          .dilation = both(c, "dilation"),
          .groups = c.integer("groups")};
}
// Options that are listed only if they are not the default.
bool rounds_up(const Call& c) { return c.a.value("ceil", false); }

Pool1dOptions pool1d(const Call& c, bool counts) {
  return {.kernel_size = c.integer("kernel"),
          .stride = c.integer("stride"),
          .padding = c.integer("padding"),
          .count_include_pad = counts,
          .ceil_mode = rounds_up(c),
          .dilation = c.a.value("dilation", std::int64_t{1})};
}
Pool2dOptions pool2d(const Call& c, bool counts) {
  return {.kernel_size = both(c, "kernel"),
          .stride = both(c, "stride"),
          .padding = both(c, "padding"),
          .count_include_pad = counts,
          .ceil_mode = rounds_up(c),
          .dilation = c.a.contains("dilation") ? both(c, "dilation") : HeightWidth(1)};
}
Pool3dOptions pool3d(const Call& c, bool counts) {
  const auto triple = [&](const char* name) { return c.a.at(name).get<std::array<std::int64_t, 3>>(); };
  return {.kernel_size = triple("kernel"),
          .stride = triple("stride"),
          .padding = triple("padding"),
          .count_include_pad = counts,
          .ceil_mode = rounds_up(c),
          .dilation = c.a.contains("dilation") ? DepthHeightWidth(triple("dilation")) : DepthHeightWidth(1)};
}

std::map<std::string, SampleFunction> elementwise() {
  std::map<std::string, SampleFunction> all;
  using Unary = Tensor (*)(const Tensor&);
  const std::pair<const char*, Unary> unary[] = {
      {"negate", [](const Tensor& x) { return -x; }},
      {"exp", exp},
      {"log", log},
      {"log1p", log1p},
      {"sqrt", sqrt},
      {"square", square},
      {"abs", abs},
      {"sign", sign},
      {"reciprocal", reciprocal},
      {"rsqrt", rsqrt},
      {"sin", sin},
      {"cos", cos},
      {"relu", relu},
      {"silu", silu},
      {"sigmoid", sigmoid},
      {"tanh", tanh},
      {"logical_not", logical_not},
      {"expm1", expm1},
      {"log2", log2},
      {"log10", log10},
      {"tan", tan},
      {"erf", erf},
      {"floor", floor},
      {"ceil", ceil},
      {"round", round},
      {"trunc", trunc},
      {"isnan", isnan},
      {"isinf", isinf},
      {"isfinite", isfinite},
      {"nonzero", nonzero},
  };
  for (const auto& [name, f] : unary) all[name] = [f = f](const Call& c) { return Results{f(c[0])}; };
  struct Binary {
    const char* name;
    Tensor (*tensors)(const Tensor&, const Tensor&);
    Tensor (*number)(const Tensor&, const Scalar&);
    Tensor (*right)(const Scalar&, const Tensor&);
  };
  const Binary binary[] = {{"add", operator+, operator+, operator+ },
                            {"subtract", operator-, operator-, operator- },
                             {"multiply", operator*, operator*, operator* },
                              {
                                  "divide",
                                  operator/,
                                  operator/,
                                  operator/ },
                                  {"pow", pow, pow, pow},
                                  {"eq", eq, eq, nullptr},
                                  {"ne", ne, ne, nullptr},
                                  {"lt", lt, lt, nullptr},
                                  {"le", le, le, nullptr},
                                  {"gt", gt, gt, nullptr},
                                  {"ge", ge, ge, nullptr},
                                  {"maximum", maximum, nullptr, nullptr},
                                  {"minimum", minimum, nullptr, nullptr},
                                  {"logical_and", logical_and, nullptr, nullptr},
                                  {"logical_or", logical_or, nullptr, nullptr},
                                  {"logical_xor", logical_xor, nullptr, nullptr},
                                  {"matmul", matmul, nullptr, nullptr},
                                  {"bmm", bmm, nullptr, nullptr},
                             };
  for (const Binary& b : binary) {
    const std::string name = b.name;
    all[name] = [f = b.tensors](const Call& c) { return Results{f(c[0], c[1])}; };
    if (b.number)
      all[name + "_number"] = [f = b.number](const Call& c) { return Results{f(c[0], c.number("number"))}; };
    if (b.right) all[name + "_right"] = [f = b.right](const Call& c) { return Results{f(c.number("number"), c[0])}; };
  }
  for (const auto& [name, mode] : {std::pair{"divide_floor", Rounding::floor}, {"divide_trunc", Rounding::trunc}}) {
    const DivOptions options{mode};
    all[name] = [=](const Call& c) { return Results{div(c[0], c[1], options)}; };
    all[name + std::string("_number")] = [=](const Call& c) { return Results{div(c[0], c.number("number"), options)}; };
    all[name + std::string("_right")] = [=](const Call& c) {
      return Results{div(full_like(c[0], c.number("number")), c[0], options)};
    };
  }
  all["add_multiple"] = [](const Call& c) { return Results{add(c[0], c[1], c.number("alpha"))}; };
  all["subtract_multiple"] = [](const Call& c) { return Results{sub(c[0], c[1], c.number("alpha"))}; };
  all["remainder"] = [](const Call& c) { return Results{remainder(c[0], c[1])}; };
  all["remainder_number"] = [](const Call& c) { return Results{remainder(c[0], c.number("number"))}; };
  all["remainder_right"] = [](const Call& c) { return Results{remainder(full_like(c[0], c.number("number")), c[0])}; };
  all["atan2"] = [](const Call& c) { return Results{atan2(c[0], c[1])}; };
  all["nan_to_num"] = [](const Call& c) {
    return Results{nan_to_num(c[0], c.number("nan"), bound(c, "posinf"), bound(c, "neginf"))};
  };
  all["clamp_tensors"] = [](const Call& c) {
    return Results{clamp(c[0], c.flag("low") ? c[1] : Tensor(), c.flag("low") ? c.at(2) : c[1])};
  };
  all["masked_fill_tensor"] = [](const Call& c) { return Results{masked_fill(c[0], c[1], c[2])}; };
  all["leaky_relu"] = [](const Call& c) { return Results{leaky_relu(c[0], c.number("a"))}; };
  all["elu"] = [](const Call& c) { return Results{elu(c[0], c.number("a"))}; };
  all["gelu"] = [](const Call& c) {
    return Results{gelu(c[0], {c.flag("tanh") ? GeluApproximation::tanh : GeluApproximation::none})};
  };
  all["softplus"] = [](const Call& c) { return Results{softplus(c[0], c.number("beta"), c.number("threshold"))}; };
  all["clamp"] = [](const Call& c) { return Results{clamp(c[0], bound(c, "min"), bound(c, "max"))}; };
  all["where"] = [](const Call& c) { return Results{where(c[0], c[1], c[2])}; };
  all["masked_fill"] = [](const Call& c) { return Results{masked_fill(c[0], c[1], c.number("value"))}; };
  all["full_like"] = [](const Call& c) { return Results{full_like(c[0], c.number("value"))}; };
  return all;
}

// Numbers, places, and letters.
std::map<std::string, SampleFunction> functions() {
  const auto integers = [](const Call& c, const char* name) { return c.a.at(name).get<std::vector<std::int64_t>>(); };
  const auto axes = [](const Call& c, const char* name) { return Dims(c.a.at(name).get<std::vector<int>>()); };
  const auto options = [](const Call& c) {
    return VarOptions{.correction = c.number("correction"), .keepdim = c.flag("keepdim")};
  };
  return {
      {"outer", [](const Call& c) { return Results{outer(c[0], c[1])}; }},
      {"dot", [](const Call& c) { return Results{dot(c[0], c[1])}; }},
      {"masked_select", [](const Call& c) { return Results{masked_select(c[0], c[1])}; }},
      {"gather", [](const Call& c) { return Results{gather(c[0], c.integer("dim"), c[1])}; }},
      {"cumprod", [](const Call& c) { return Results{cumprod(c[0], c.integer("dim"))}; }},
      {"median", [](const Call& c) { return Results{median(c[0])}; }},
      {"median_dim",
       [](const Call& c) {
         const MaxResult y = median(c[0], c.integer("dim"), c.flag("keepdim"));
         return Results{y.values, y.indices};
       }},
      {"std_mean",
       [=](const Call& c) {
         const StdMean y = std_mean(c[0], c.dims(), options(c));
         return Results{y.std, y.mean};
       }},
      {"var_mean",
       [=](const Call& c) {
         const VarMean y = var_mean(c[0], c.dims(), options(c));
         return Results{y.var, y.mean};
       }},
      {"repeat", [](const Call& c) { return Results{repeat(c[0], c.shape())}; }},
      {"tile", [](const Call& c) { return Results{tile(c[0], c.shape())}; }},
      {"repeat_interleave",
       [](const Call& c) {
         const auto dim = c.optional("dim");
         return Results{repeat_interleave(c[0], c.a.at("repeats").get<std::int64_t>(),
                                          dim ? std::optional(static_cast<int>(*dim)) : std::nullopt)};
       }},
      {"repeat_interleave_tensor",
       [](const Call& c) { return Results{repeat_interleave(c[0], c[1], c.integer("dim"))}; }},
      {"flip", [=](const Call& c) { return Results{flip(c[0], axes(c, "dims"))}; }},
      {"roll",
       [=](const Call& c) {
         const auto shifts = integers(c, "shifts");
         return Results{c.a.at("dims").empty() ? roll(c[0], shifts.at(0)) : roll(c[0], shifts, axes(c, "dims"))};
       }},
      {"movedim", [=](const Call& c) { return Results{movedim(c[0], axes(c, "source"), axes(c, "destination"))}; }},
      {"einsum", [](const Call& c) { return Results{einsum(c.a.at("equation").get<std::string>(), c.x)}; }},
      {"normalize",
       [](const Call& c) { return Results{normalize(c[0], c.number("p"), c.integer("dim"), c.number("eps"))}; }},
      {"cosine_similarity",
       [](const Call& c) { return Results{cosine_similarity(c[0], c[1], c.integer("dim"), c.number("eps"))}; }},
      {"pairwise_distance",
       [](const Call& c) {
         return Results{pairwise_distance(c[0], c[1], c.number("p"), c.number("eps"), c.flag("keepdim"))};
       }},
      {"cdist", [](const Call& c) { return Results{cdist(c[0], c[1], c.number("p"))}; }},
      {"scatter", [](const Call& c) { return Results{scatter(c[0], c.integer("dim"), c[1], c[2])}; }},
      {"scatter_number",
       [](const Call& c) { return Results{scatter(c[0], c.integer("dim"), c[1], c.number("value"))}; }},
      {"index_add",
       [](const Call& c) { return Results{index_add(c[0], c.integer("dim"), c[1], c[2], c.number("alpha"))}; }},
      {"unique",
       [](const Call& c) {
         const UniqueResult y = c.a.contains("dim") ? unique(c[0], c.integer("dim")) : unique(c[0]);
         return Results{y.values, y.inverse, y.counts};
       }},
      {"bincount", [](const Call& c) { return Results{bincount(c[0], c.at(1), c.integer("minlength"))}; }},
  };
}

std::map<std::string, SampleFunction> shapes() {
  return {
      {"reshape", [](const Call& c) { return Results{reshape(c[0], c.shape())}; }},
      {"flatten", [](const Call& c) { return Results{flatten(c[0], c.integer("start"), c.integer("end"))}; }},
      {"unflatten", [](const Call& c) { return Results{unflatten(c[0], c.integer("dim"), c.shape())}; }},
      {"squeeze", [](const Call& c) { return Results{squeeze(c[0], c.dims())}; }},
      {"unsqueeze", [](const Call& c) { return Results{unsqueeze(c[0], c.integer("dim"))}; }},
      {"permute", [](const Call& c) { return Results{permute(c[0], c.a.at("dims").get<std::vector<int>>())}; }},
      {"transpose", [](const Call& c) { return Results{transpose(c[0], c.integer("a"), c.integer("b"))}; }},
      {"expand", [](const Call& c) { return Results{expand(c[0], c.shape())}; }},
      {"narrow",
       [](const Call& c) { return Results{narrow(c[0], c.integer("dim"), c.integer("start"), c.integer("length"))}; }},
      {"select", [](const Call& c) { return Results{select(c[0], c.integer("dim"), c.integer("index"))}; }},
      {"slice",
       [](const Call& c) {
         return Results{slice(c[0], c.integer("dim"), c.optional("start"), c.optional("end"), c.integer("step"))};
       }},
      {"split", [](const Call& c) { return split(c[0], c.a.at("size").get<std::int64_t>(), c.integer("dim")); }},
      {"split_sizes",
       [](const Call& c) { return split(c[0], c.a.at("sizes").get<std::vector<std::int64_t>>(), c.integer("dim")); }},
      {"chunk", [](const Call& c) { return chunk(c[0], c.integer("chunks"), c.integer("dim")); }},
      {"unbind", [](const Call& c) { return unbind(c[0], c.integer("dim")); }},
      {"pad",
       [](const Call& c) {
         return Results{pad(c[0], c.a.at("widths").get<std::vector<std::int64_t>>(), c.number("value"))};
       }},
      {"cat", [](const Call& c) { return Results{cat(c.x, c.integer("dim"))}; }},
      {"stack", [](const Call& c) { return Results{stack(c.x, c.integer("dim"))}; }},
      {"take_along_dim", [](const Call& c) { return Results{take_along_dim(c[0], c[1], c.integer("dim"))}; }},
      {"index_select", [](const Call& c) { return Results{index_select(c[0], c.integer("dim"), c[1])}; }},
      {"embedding", [](const Call& c) { return Results{embedding(c[0], c[1], c.optional("padding"))}; }},
      {"scatter_add", [](const Call& c) { return Results{scatter_add(c[0], c.integer("dim"), c[1], c[2])}; }},
      {"one_hot", [](const Call& c) { return Results{one_hot(c[0], c.integer("classes"))}; }},
      {"tril", [](const Call& c) { return Results{tril(c[0], c.integer("diagonal"))}; }},
      {"triu", [](const Call& c) { return Results{triu(c[0], c.integer("diagonal"))}; }},
  };
}

std::map<std::string, SampleFunction> reductions() {
  std::map<std::string, SampleFunction> all;
  using Reduce = Tensor (*)(const Tensor&, const Dims&, bool);
  for (const auto& [name, f] : std::initializer_list<std::pair<const char*, Reduce>>{{"sum", sum},
                                                                                     {"mean", mean},
                                                                                     {"amax", amax},
                                                                                     {"amin", amin},
                                                                                     {"any", any},
                                                                                     {"all", lockstep::all},
                                                                                     {"logsumexp", logsumexp}}) {
    all[name] = [f = f](const Call& c) { return Results{f(c[0], c.dims(), c.flag("keepdim"))}; };
  }
  const auto options = [](const Call& c) {
    return VarOptions{.correction = c.number("correction"), .keepdim = c.flag("keepdim")};
  };
  const auto pair = [](const MaxResult& r) { return Results{r.values, r.indices}; };
  const auto dim = [](const Call& c) {
    const auto found = c.optional("dim");
    return found ? std::optional(static_cast<int>(*found)) : std::nullopt;
  };
  all["var"] = [=](const Call& c) { return Results{var(c[0], c.dims(), options(c))}; };
  all["std"] = [=](const Call& c) { return Results{lockstep::std(c[0], c.dims(), options(c))}; };
  all["max"] = [](const Call& c) { return Results{max(c[0])}; };
  all["min"] = [](const Call& c) { return Results{min(c[0])}; };
  all["max_dim"] = [=](const Call& c) { return pair(max(c[0], c.integer("dim"), c.flag("keepdim"))); };
  all["min_dim"] = [=](const Call& c) { return pair(min(c[0], c.integer("dim"), c.flag("keepdim"))); };
  all["argmax"] = [=](const Call& c) { return Results{argmax(c[0], dim(c), c.flag("keepdim"))}; };
  all["argmin"] = [=](const Call& c) { return Results{argmin(c[0], dim(c), c.flag("keepdim"))}; };
  all["prod"] = [](const Call& c) { return Results{prod(c[0])}; };
  all["prod_dim"] = [](const Call& c) { return Results{prod(c[0], c.integer("dim"), c.flag("keepdim"))}; };
  all["norm"] = [](const Call& c) { return Results{norm(c[0], c.number("p"), c.dims(), c.flag("keepdim"))}; };
  all["sum_to"] = [](const Call& c) { return Results{sum_to(c[0], c.shape())}; };
  all["cumsum"] = [](const Call& c) { return Results{cumsum(c[0], c.integer("dim"))}; };
  all["sort"] = [=](const Call& c) { return pair(sort(c[0], c.integer("dim"), c.flag("descending"))); };
  all["argsort"] = [](const Call& c) { return Results{argsort(c[0], c.integer("dim"), c.flag("descending"))}; };
  all["topk"] = [=](const Call& c) { return pair(topk(c[0], c.integer("k"), c.integer("dim"), c.flag("largest"))); };
  const auto type = [](const Call& c) -> std::optional<DType> {
    if (c.a.at("dtype").is_null()) return std::nullopt;
    return c.a.at("dtype") == "f64" ? DType::f64 : c.a.at("dtype") == "f32" ? DType::f32 : DType::i64;
  };
  all["softmax"] = [=](const Call& c) { return Results{softmax(c[0], c.integer("dim"), type(c))}; };
  all["log_softmax"] = [=](const Call& c) { return Results{log_softmax(c[0], c.integer("dim"), type(c))}; };
  return all;
}

std::map<std::string, SampleFunction> layers() {
  return {
      {"linear", [](const Call& c) { return Results{linear(c[0], c[1], c.at(2))}; }},
      {"conv1d", [](const Call& c) { return Results{conv1d(c[0], c[1], c.at(2), conv1d_options(c))}; }},
      {"conv2d", [](const Call& c) { return Results{conv2d(c[0], c[1], c.at(2), conv2d_options(c))}; }},
      {"conv_transpose2d",
       [](const Call& c) {
         return Results{conv_transpose2d(c[0], c[1], c.at(2),
                                         {.stride = both(c, "stride"),
                                          .padding = both(c, "padding"),
                                          .output_padding = both(c, "output_padding"),
                                          .groups = c.integer("groups"),
                                          .dilation = both(c, "dilation")})};
       }},
      {"max_pool1d", [](const Call& c) { return Results{max_pool1d(c[0], pool1d(c, true))}; }},
      {"max_pool2d", [](const Call& c) { return Results{max_pool2d(c[0], pool2d(c, true))}; }},
      {"avg_pool1d", [](const Call& c) { return Results{avg_pool1d(c[0], pool1d(c, c.flag("counts")))}; }},
      {"avg_pool2d", [](const Call& c) { return Results{avg_pool2d(c[0], pool2d(c, c.flag("counts")))}; }},
      {"adaptive_avg_pool2d",
       [](const Call& c) {
         return Results{adaptive_avg_pool2d(c[0], c.a.at("size").get<std::array<std::int64_t, 2>>())};
       }},
      {"layer_norm",
       [](const Call& c) { return Results{layer_norm(c[0], c.shape(), c.at(1), c.at(2), c.number("eps"))}; }},
      {"group_norm",
       [](const Call& c) { return Results{group_norm(c[0], c.integer("groups"), c.at(1), c.at(2), c.number("eps"))}; }},
      {"interpolate",
       [](const Call& c) {
         const std::string mode = c.a.value("mode", "");
         InterpolateOptions options{.mode = c.flag("bilinear")  ? Interpolation::bilinear
                                            : mode == "bicubic" ? Interpolation::bicubic
                                            : mode == "area"    ? Interpolation::area
                                                                : Interpolation::nearest,
                                    .align_corners = c.flag("corners")};
         if (!c.a.at("size").is_null()) options.size = c.a.at("size").get<std::array<std::int64_t, 2>>();
         if (!c.a.at("factor").is_null()) options.scale_factor = c.number("factor");
         return Results{interpolate(c[0], options)};
       }},
      {"mse_loss", [](const Call& c) { return Results{mse_loss(c[0], c[1], {c.reduction()})}; }},
      {"l1_loss", [](const Call& c) { return Results{l1_loss(c[0], c[1], {c.reduction()})}; }},
      {"huber_loss",
       [](const Call& c) {
         return Results{huber_loss(c[0], c[1], {c.reduction(), c.number("delta")})};
       }},
      {"smooth_l1_loss",
       [](const Call& c) {
         return Results{smooth_l1_loss(c[0], c[1], {c.reduction(), c.number("beta")})};
       }},
      {"kl_div",
       [](const Call& c) {
         return Results{kl_div(c[0], c[1], {c.reduction(), c.flag("log_target")})};
       }},
      {"bce_with_logits",
       [](const Call& c) {
         const bool weighted = c.flag("weighted");
         BinaryCrossEntropyOptions options{.reduction = c.reduction()};
         if (weighted) options.weight = c[2];
         if (c.flag("pos_weighted")) options.pos_weight = c[weighted ? 3 : 2];
         return Results{binary_cross_entropy_with_logits(c[0], c[1], options)};
       }},
      {"nll_loss",
       [](const Call& c) {
         NllLossOptions options{.weight = c.at(2), .reduction = c.reduction()};
         if (const auto ignored = c.optional("ignore")) options.ignore_index = ignored;
         return Results{nll_loss(c[0], c[1], options)};
       }},
      {"cross_entropy",
       [](const Call& c) {
         CrossEntropyOptions options{
             .weight = c.at(2), .reduction = c.reduction(), .label_smoothing = c.number("smoothing")};
         if (const auto ignored = c.optional("ignore")) options.ignore_index = ignored;
         return Results{cross_entropy(c[0], c[1], options)};
       }},
  };
}

std::map<std::string, SampleFunction> later_functions() {
  std::map<std::string, SampleFunction> all;
  for (const auto& [name, f] :
       std::initializer_list<std::pair<const char*, Tensor (*)(const Tensor&)>>{{"hardsigmoid", hardsigmoid},
                                                                                {"hardswish", hardswish},
                                                                                {"logsigmoid", logsigmoid},
                                                                                {"mish", mish},
                                                                                {"relu6", relu6},
                                                                                {"selu", selu},
                                                                                {"softsign", softsign},
                                                                                {"tanhshrink", tanhshrink},
                                                                                {"clone", clone},
                                                                                {"zeros_like", zeros_like},
                                                                                {"ones_like", ones_like}}) {
    all[name] = [f = f](const Call& c) { return Results{f(c[0])}; };
  }
  const auto pair = [](const MaxResult& r) { return Results{r.values, r.indices}; };
  all["contiguous"] = [](const Call& c) { return Results{c[0].contiguous()}; };
  all["t"] = [](const Call& c) { return Results{c[0].t()}; };
  all["cummax"] = [=](const Call& c) { return pair(cummax(c[0], c.integer("dim"))); };
  all["cummin"] = [=](const Call& c) { return pair(cummin(c[0], c.integer("dim"))); };
  all["glu"] = [](const Call& c) { return Results{glu(c[0], c.integer("dim"))}; };
  all["celu"] = [](const Call& c) { return Results{celu(c[0], c.number("a"))}; };
  all["hardshrink"] = [](const Call& c) { return Results{hardshrink(c[0], c.number("a"))}; };
  all["softshrink"] = [](const Call& c) { return Results{softshrink(c[0], c.number("a"))}; };
  all["hardtanh"] = [](const Call& c) { return Results{hardtanh(c[0], c.number("min"), c.number("max"))}; };
  all["threshold"] = [](const Call& c) { return Results{threshold(c[0], c.number("a"), c.number("value"))}; };
  all["prelu"] = [](const Call& c) { return Results{prelu(c[0], c[1])}; };
  all["softmin"] = [](const Call& c) { return Results{softmax(-c[0], c.integer("dim"))}; };
  all["pixel_shuffle"] = [](const Call& c) { return Results{pixel_shuffle(c[0], c.integer("factor"))}; };
  all["pixel_unshuffle"] = [](const Call& c) { return Results{pixel_unshuffle(c[0], c.integer("factor"))}; };
  all["unfold"] = [](const Call& c) {
    return Results{unfold(c[0], {.kernel_size = both(c, "kernel"),
                                 .dilation = both(c, "dilation"),
                                 .padding = both(c, "padding"),
                                 .stride = both(c, "stride")})};
  };
  all["meshgrid"] = [](const Call& c) {
    return meshgrid(std::span(c.x), c.flag("xy") ? GridIndexing::xy : GridIndexing::ij);
  };
  all["conv_transpose1d"] = [](const Call& c) {
    return Results{conv_transpose1d(c[0], c[1], c.at(2),
                                    {.stride = c.integer("stride"),
                                     .padding = c.integer("padding"),
                                     .output_padding = c.integer("output_padding"),
                                     .groups = c.integer("groups"),
                                     .dilation = c.integer("dilation")})};
  };
  all["instance_norm"] = [](const Call& c) { return Results{instance_norm(c[0], c.at(1), c.at(2), c.number("eps"))}; };
  all["grid_sample"] = [](const Call& c) {
    return Results{grid_sample(c[0], c[1],
                               {.mode = c.flag("nearest") ? Interpolation::nearest : Interpolation::bilinear,
                                .padding_mode = c.flag("border") ? GridPadding::border : GridPadding::zeros,
                                .align_corners = c.flag("corners")})};
  };
  all["embedding_bag"] = [](const Call& c) {
    const std::string mode = c.a.at("mode");
    const bool offsets = c.flag("offsets");
    EmbeddingBagOptions options{.mode = mode == "sum"   ? BagMode::sum
                                        : mode == "max" ? BagMode::max
                                                        : BagMode::mean,
                                .padding_idx = c.optional("padding"),
                                .per_sample_weights = c.at(offsets ? 3 : 2)};
    if (offsets) options.offsets = c[2];
    options.include_last_offset = c.flag("last");
    return Results{embedding_bag(c[0], c[1], options)};
  };
  all["max_pool2d_with_indices"] = [=](const Call& c) { return pair(max_pool2d_with_indices(c[0], pool2d(c, true))); };
  all["max_pool3d"] = [](const Call& c) { return Results{max_pool3d(c[0], pool3d(c, true))}; };
  all["avg_pool3d"] = [](const Call& c) { return Results{avg_pool3d(c[0], pool3d(c, c.flag("counts")))}; };
  const auto size = [](const Call& c) { return c.a.at("size").get<std::vector<std::int64_t>>(); };
  all["adaptive_avg_pool1d"] = [=](const Call& c) { return Results{adaptive_avg_pool1d(c[0], size(c).at(0))}; };
  all["adaptive_max_pool1d"] = [=](const Call& c) { return Results{adaptive_max_pool1d(c[0], size(c).at(0))}; };
  all["adaptive_max_pool2d"] = [=](const Call& c) {
    return Results{adaptive_max_pool2d(c[0], {size(c).at(0), size(c).at(1)})};
  };
  all["adaptive_avg_pool3d"] = [=](const Call& c) {
    return Results{adaptive_avg_pool3d(c[0], {size(c).at(0), size(c).at(1), size(c).at(2)})};
  };
  all["adaptive_max_pool3d"] = [=](const Call& c) {
    return Results{adaptive_max_pool3d(c[0], {size(c).at(0), size(c).at(1), size(c).at(2)})};
  };
  return all;
}

std::map<std::string, SampleFunction> later_losses() {
  std::map<std::string, SampleFunction> all;
  const auto probability = [](const Call& c) {
    ProbabilityLossOptions options{.reduction = c.reduction()};
    if (c.flag("weighted")) options.weight = c[2];
    return options;
  };
  const auto margin = [](const Call& c) {
    return MarginLossOptions{.margin = c.number("margin"), .reduction = c.reduction()};
  };
  all["binary_cross_entropy"] = [=](const Call& c) {
    return Results{binary_cross_entropy(c[0], c[1], probability(c))};
  };
  all["multilabel_soft_margin_loss"] = [=](const Call& c) {
    return Results{multilabel_soft_margin_loss(c[0], c[1], probability(c))};
  };
  all["soft_margin_loss"] = [](const Call& c) { return Results{soft_margin_loss(c[0], c[1], {c.reduction()})}; };
  all["multilabel_margin_loss"] = [](const Call& c) {
    return Results{multilabel_margin_loss(c[0], c[1], {c.reduction()})};
  };
  all["hinge_embedding_loss"] = [](const Call& c) {
    return Results{hinge_embedding_loss(c[0], c[1], {.margin = c.number("margin"), .reduction = c.reduction()})};
  };
  all["cosine_embedding_loss"] = [=](const Call& c) {
    return Results{cosine_embedding_loss(c[0], c[1], c[2], margin(c))};
  };
  all["margin_ranking_loss"] = [=](const Call& c) { return Results{margin_ranking_loss(c[0], c[1], c[2], margin(c))}; };
  all["gaussian_nll_loss"] = [](const Call& c) {
    return Results{gaussian_nll_loss(c[0], c[1], c[2],
                                     {.full = c.flag("full"), .eps = c.number("eps"), .reduction = c.reduction()})};
  };
  all["poisson_nll_loss"] = [](const Call& c) {
    return Results{poisson_nll_loss(c[0], c[1],
                                    {.log_input = c.flag("log_input"),
                                     .full = c.flag("full"),
                                     .eps = c.number("eps"),
                                     .reduction = c.reduction()})};
  };
  all["multi_margin_loss"] = [](const Call& c) {
    MultiMarginLossOptions options{.p = c.integer("p"), .margin = c.number("margin"), .reduction = c.reduction()};
    if (c.flag("weighted")) options.weight = c[2];
    return Results{multi_margin_loss(c[0], c[1], options)};
  };
  all["triplet_margin_loss"] = [](const Call& c) {
    return Results{triplet_margin_loss(c[0], c[1], c[2],
                                       {.margin = c.number("margin"),
                                        .p = c.number("p"),
                                        .eps = c.number("eps"),
                                        .swap = c.flag("swap"),
                                        .reduction = c.reduction()})};
  };
  all["ctc_loss"] = [](const Call& c) {
    return Results{
        ctc_loss(c[0], c[1], c[2], c[3],
                 {.blank = c.integer("blank"), .reduction = c.reduction(), .zero_infinity = c.flag("zero_infinity")})};
  };
  return all;
}

}  // namespace

std::map<std::string, SampleFunction> sample_functions() {
  std::map<std::string, SampleFunction> all = elementwise();
  all.merge(functions());
  all.merge(shapes());
  all.merge(reductions());
  all.merge(layers());
  all.merge(later_functions());
  all.merge(later_losses());
  return all;
}

}  // namespace lockstep::testing
