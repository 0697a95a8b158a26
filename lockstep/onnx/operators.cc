#include "lockstep/onnx/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <numeric>

namespace lockstep {
namespace {

constexpr std::int64_t kToEnd = std::numeric_limits<std::int64_t>::max(),
                       kToStart = std::numeric_limits<std::int64_t>::min();

class OperatorWriter {
 public:
  using Op = GraphOperation;

  OperatorWriter(OnnxFile& file, const TracedGraph& graph, const GraphNames& names,
                 const std::function<std::string(int)>& weight)
      : file_(file), graph_(graph), given_(names), weight_(weight), names_(graph.values.size()),
        conditions_(graph.values.size()) {}

  void write();

 private:
  using Writer = void (OperatorWriter::*)(const Op&);
  static const std::map<std::string_view, Writer>& table();

  const GraphValue& value(int number) const { return graph_.values[static_cast<std::size_t>(number)]; }
  const std::vector<Extent>& shape(int number) const { return value(number).shape; }
  int rank(int number) const { return static_cast<int>(shape(number).size()); }
  static bool has(const Op& op, std::size_t input) { return input < op.inputs.size() && op.inputs[input] >= 0; }
  DType dtype(const Op& op) const { return value(op.outputs[0]).dtype; }

  // The name of an input; empty if it is omitted.
  std::string in(const Op& op, std::size_t input) { return has(op, input) ? named(op.inputs[input]) : ""; }
  std::string named(int number);
  // Returns the name of an input as BOOL.
  std::string mask(const Op& op, std::size_t input);
  void give(const Op& op, const std::string& name, std::size_t output = 0) {
    names_[static_cast<std::size_t>(op.outputs[output])] = name;
  }
  std::string node(std::string_view type, const OnnxNames& inputs, const OnnxAttributes& attributes = {}) {
    return file_.node(type, inputs, attributes);
  }
  void simple(const Op& op, std::string_view type, const OnnxAttributes& attributes = {}) {
    OnnxNames inputs;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) inputs.push_back(in(op, i));
    give(op, node(type, inputs, attributes));
  }
  std::string number(const Op& op, const Scalar& x) { return file_.number(dtype(op), x); }
  std::string cast_to(const std::string& name, OnnxType type) {
    return node("Cast", {name}, {{"to", static_cast<std::int64_t>(type)}});
  }
  // Returns an input cast to the result's type: weights are f32 where the other tensors have half types.
  std::string in_type(const Op& op, std::size_t input) {
    const std::string name = in(op, input);
    return name.empty() || value(op.inputs[input]).dtype == dtype(op) ? name : cast_to(name, onnx_type(dtype(op)));
  }

  std::string batch_size();
  // Returns a shape as i64 [n]. `inferred`: if a single extent follows from the batch, it is -1.
  std::string shape_input(const std::string& where, const std::vector<Extent>& extents, bool inferred = false);
  std::string expanded(const Op& op, const std::string& x, const std::vector<Extent>& from,
                       const std::vector<Extent>& to);
  std::int64_t fixed(const Op& op, const Extent& e, std::string_view what) const {
    check(e.fixed(), "export_onnx: the {} of {} follows from the size of the batch", what, op.where());
    return e.value;
  }
  std::vector<std::int64_t> fixed_shape(const Op& op, int value) const {
    std::vector<std::int64_t> all;
    for (const Extent& e : shape(value)) all.push_back(fixed(op, e, "shape"));
    return all;
  }
  OnnxShape shape_info(int value) const;

  // Families of operations.
  template <std::size_t N>
  struct Text {
    char text[N];
    constexpr Text(const char (&t)[N]) { std::copy_n(t, N, text); }  // NOLINT: converts
  };
  template <Text kType>
  void same_operator(const Op& op) {
    simple(op, kType.text);
  }
  template <Text kType>
  void truth_operator(const Op& op) {
    check(dtype(op) == DType::boolean, "export_onnx: {} works on the bits of {}, which has no form in ONNX", op.where(),
          lockstep::name(dtype(op)));
    simple(op, kType.text);
  }
  void affine(const Op& op);
  void divide_by(const Op& op) { give(op, node("Div", {in(op, 0), number(op, op.real("a"))})); }
  void square(const Op& op) { give(op, node("Mul", {in(op, 0), in(op, 0)})); }
  void log1p(const Op& op) { give(op, node("Log", {node("Add", {in(op, 0), number(op, 1)})})); }
  void expm1(const Op& op) { give(op, node("Sub", {node("Exp", {in(op, 0)}), number(op, 1)})); }
  void log_of_base(const Op& op) {
    const double base = op.kind == "log2" ? std::numbers::ln2 : std::numbers::ln10;
    give(op, node("Div", {node("Log", {in(op, 0)}), number(op, base)}));
  }
  void rsqrt(const Op& op) { give(op, node("Reciprocal", {node("Sqrt", {in(op, 0)})})); }
  void leaky(const Op& op) {
    simple(op, op.kind == "elu" ? "Elu" : "LeakyRelu", {{"alpha", static_cast<float>(op.real("a"))}});
  }
  void gelu(const Op& op);
  void silu(const Op& op) { give(op, node("Mul", {in(op, 0), node("Sigmoid", {in(op, 0)})})); }
  void softplus(const Op& op);
  void clamp(const Op& op);
  void pow_by(const Op& op);
  std::string truncated(const std::string& x) {
    return node("Mul", {node("Sign", {x}), node("Floor", {node("Abs", {x})})});
  }
  void trunc(const Op& op) { give(op, truncated(in(op, 0))); }
  void divide_rounded(const Op& op);
  void remainder(const Op& op);
  void fill(const Op& op);
  void compare(const Op& op);
  void where(const Op& op);
  void cast(const Op& op);
  void reshape(const Op& op) {
    give(op, node("Reshape", {in(op, 0), shape_input(op.where(), shape(op.outputs[0]), true)}));
  }
  void permute(const Op& op) { simple(op, "Transpose", {{"perm", op.numbers("axes")}}); }
  void expand(const Op& op) { give(op, expanded(op, in(op, 0), shape(op.inputs[0]), shape(op.outputs[0]))); }
  void cat(const Op& op) { simple(op, "Concat", {{"axis", op.has("axis") ? op.whole("axis") : std::int64_t{0}}}); }
  void slice(const Op& op);
  std::vector<std::int64_t> masked_axes(const Op& op) const;
  void flip(const Op& op);
  void pad(const Op& op);
  void triangle(const Op& op) {
    give(op,
         node("Trilu", {in(op, 0), file_.whole(op.whole("diagonal"))}, {{"upper", std::int64_t{op.kind == "triu"}}}));
  }
  void along_axis(const Op& op) {
    simple(op, op.kind == "softmax" ? "Softmax" : "LogSoftmax", {{"axis", op.whole("axis")}});
  }
  void linear(const Op& op);
  OnnxAttributes conv_attributes(const Op& op) const;
  void conv(const Op& op);
  void conv_transpose(const Op& op);
  void batch_norm(const Op& op);
  void row_norm(const Op& op);
  struct Windows {
    std::vector<std::int64_t> kernel, stride, pads;
    bool beyond = false;  // the last window reaches beyond the padding
    OnnxAttributes attributes() const { return {{"kernel_shape", kernel}, {"strides", stride}, {"pads", pads}}; }
  };
  Windows windows(const Op& op) const;
  void max_pool(const Op& op);
  void max_pool_places(const Op& op);
  void avg_pool(const Op& op);
  void lp_pool(const Op& op);
  void causal(const Op& op);
  void reduce(const Op& op);
  void sum_to(const Op& op);
  void argmax(const Op& op);
  void cumsum(const Op& op) { give(op, node("CumSum", {in(op, 0), file_.whole(op.whole("axis"))})); }
  void argsort(const Op& op);
  void embedding(const Op& op) { give(op, node("Gather", {in(op, 1), in(op, 0)}, {{"axis", std::int64_t{0}}})); }
  void index_select(const Op& op) { simple(op, "Gather", {{"axis", op.whole("axis")}}); }
  void take_along(const Op& op);
  void scatter(const Op& op);
  void index_add(const Op& op);
  void one_hot(const Op& op);
  void recurrent(const Op& op);

  OnnxFile& file_;
  const TracedGraph& graph_;
  const GraphNames& given_;
  const std::function<std::string(int)>& weight_;
  // Names by value. conditions_ has the names of u8 values that were cast to BOOL.
  std::vector<std::string> names_, conditions_;
  std::string batch_size_;
};

const std::map<std::string_view, OperatorWriter::Writer>& OperatorWriter::table() {
  using W = OperatorWriter;
  static const std::map<std::string_view, Writer> table{{"negate", &W::same_operator<"Neg">},
                                                        {"exp", &W::same_operator<"Exp">},
                                                        {"log", &W::same_operator<"Log">},
                                                        {"log1p", &W::log1p},
                                                        {"expm1", &W::expm1},
                                                        {"log2", &W::log_of_base},
                                                        {"log10", &W::log_of_base},
                                                        {"sqrt", &W::same_operator<"Sqrt">},
                                                        {"square", &W::square},
                                                        {"abs", &W::same_operator<"Abs">},
                                                        {"sign", &W::same_operator<"Sign">},
                                                        {"reciprocal", &W::same_operator<"Reciprocal">},
                                                        {"rsqrt", &W::rsqrt},
                                                        {"sin", &W::same_operator<"Sin">},
                                                        {"cos", &W::same_operator<"Cos">},
                                                        {"tan", &W::same_operator<"Tan">},
                                                        {"erf", &W::same_operator<"Erf">},
                                                        {"relu", &W::same_operator<"Relu">},
                                                        {"leaky_relu", &W::leaky},
                                                        {"elu", &W::leaky},
                                                        {"gelu", &W::gelu},
                                                        {"silu", &W::silu},
                                                        {"softplus", &W::softplus},
                                                        {"sigmoid", &W::same_operator<"Sigmoid">},
                                                        {"tanh", &W::same_operator<"Tanh">},
                                                        {"clamp", &W::clamp},
                                                        {"pow", &W::pow_by},
                                                        {"divide_by", &W::divide_by},
                                                        {"floor", &W::same_operator<"Floor">},
                                                        {"ceil", &W::same_operator<"Ceil">},
                                                        {"round", &W::same_operator<"Round">},
                                                        {"trunc", &W::trunc},
                                                        {"affine", &W::affine},
                                                        {"add", &W::same_operator<"Add">},
                                                        {"subtract", &W::same_operator<"Sub">},
                                                        {"multiply", &W::same_operator<"Mul">},
                                                        {"divide", &W::same_operator<"Div">},
                                                        {"maximum", &W::same_operator<"Max">},
                                                        {"minimum", &W::same_operator<"Min">},
                                                        {"divide_trunc", &W::divide_rounded},
                                                        {"divide_floor", &W::divide_rounded},
                                                        {"remainder", &W::remainder},
                                                        {"bit_and", &W::truth_operator<"And">},
                                                        {"bit_or", &W::truth_operator<"Or">},
                                                        {"bit_xor", &W::truth_operator<"Xor">},
                                                        {"fill", &W::fill},
                                                        {"eq", &W::compare},
                                                        {"ne", &W::compare},
                                                        {"lt", &W::compare},
                                                        {"le", &W::compare},
                                                        {"where", &W::where},
                                                        {"cast", &W::cast},
                                                        {"reshape", &W::reshape},
                                                        {"permute", &W::permute},
                                                        {"expand", &W::expand},
                                                        {"cat", &W::cat},
                                                        {"concatenate", &W::cat},
                                                        {"slice", &W::slice},
                                                        {"flip", &W::flip},
                                                        {"pad", &W::pad},
                                                        {"triu", &W::triangle},
                                                        {"tril", &W::triangle},
                                                        {"softmax", &W::along_axis},
                                                        {"log_softmax", &W::along_axis},
                                                        {"matmul", &W::same_operator<"MatMul">},
                                                        {"linear", &W::linear},
                                                        {"conv", &W::conv},
                                                        {"conv_transpose", &W::conv_transpose},
                                                        {"batch_norm", &W::batch_norm},
                                                        {"row_norm", &W::row_norm},
                                                        {"max_pool", &W::max_pool},
                                                        {"max_pool_places", &W::max_pool_places},
                                                        {"avg_pool", &W::avg_pool},
                                                        {"lp_pool", &W::lp_pool},
                                                        {"global avg pool", &W::same_operator<"GlobalAveragePool">},
                                                        {"attention", &W::causal},
                                                        {"reduce_sum", &W::reduce},
                                                        {"reduce_max", &W::reduce},
                                                        {"sum_to", &W::sum_to},
                                                        {"argmax", &W::argmax},
                                                        {"cumsum", &W::cumsum},
                                                        {"argsort", &W::argsort},
                                                        {"embedding", &W::embedding},
                                                        {"index_select", &W::index_select},
                                                        {"take_along_dim", &W::take_along},
                                                        {"scatter", &W::scatter},
                                                        {"scatter_add", &W::scatter},
                                                        {"index_add", &W::index_add},
                                                        {"one_hot", &W::one_hot},
                                                        {"lstm", &W::recurrent},
                                                        {"gru", &W::recurrent},
                                                        {"rnn_tanh", &W::recurrent},
                                                        {"rnn_relu", &W::recurrent}};
  return table;
}

void OperatorWriter::write() {
  for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
    const int number = graph_.inputs[i];
    file_.input(given_.inputs[i], onnx_type(value(number).dtype), shape_info(number));
    names_[static_cast<std::size_t>(number)] = given_.inputs[i];
  }
  for (const Op& op : graph_.operations) {
    const auto writer = table().find(op.kind);
    check(writer != table().end(), "export_onnx: {} has no form in ONNX", op.where());
    file_.set_module(op.module);
    (this->*writer->second)(op);
  }
  file_.set_module("");
  for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
    const int number = graph_.outputs[i];
    file_.output(given_.outputs[i], named(number), onnx_type(value(number).dtype), shape_info(number));
  }
}

OnnxShape OperatorWriter::shape_info(int number) const {
  OnnxShape all;
  for (const Extent& e : shape(number)) {
    if (e.fixed()) {
      all.emplace_back(e.value);
    } else {
      all.emplace_back(e.factor == 1 ? "batch" : e.odd ? "from_batch" : fmt::format("{} * batch", e.factor));
    }
  }
  return all;
}

std::string OperatorWriter::named(int number) {
  std::string& name = names_[static_cast<std::size_t>(number)];
  if (!name.empty()) return name;
  const GraphValue& v = value(number);
  std::vector<std::int64_t> extents;
  for (const Extent& e : v.shape) extents.push_back(e.value);
  const bool fixed = std::ranges::all_of(v.shape, &Extent::fixed);
  if (v.source == ValueSource::weight) {
    file_.initializer(v.name, onnx_type(v.dtype), extents, weight_(number));
    return name = v.name;
  }
  check(v.source == ValueSource::constant, "export_onnx: value {} has no name", number);
  if (fixed) return name = file_.constant(onnx_type(v.dtype), extents, v.bytes);
  const std::string one = file_.constant(onnx_type(v.dtype), {}, v.bytes);
  return name = node("Expand", {one, shape_input("a constant", v.shape)});
}

std::string OperatorWriter::mask(const Op& op, std::size_t input) {
  const auto number = static_cast<std::size_t>(op.inputs[input]);
  if (value(op.inputs[input]).dtype == DType::boolean) return named(op.inputs[input]);
  if (conditions_[number].empty()) conditions_[number] = cast_to(named(op.inputs[input]), OnnxType::boolean);
  return conditions_[number];
}

std::string OperatorWriter::batch_size() {
  if (!batch_size_.empty()) return batch_size_;
  for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
    const std::int64_t axis = given_.batch_axes[i];
    if (axis < 0) continue;
    return batch_size_ = node("Shape", {given_.inputs[i]}, {{"start", axis}, {"end", axis + 1}});
  }
  fail("export_onnx: no input has a batch");
}

std::string OperatorWriter::shape_input(const std::string& where, const std::vector<Extent>& extents, bool inferred) {
  const bool one = inferred && std::ranges::count_if(extents, [](const Extent& e) { return !e.fixed(); }) == 1;
  OnnxNames parts;
  std::vector<std::int64_t> numbers;
  const auto end_numbers = [&] {
    if (!numbers.empty()) parts.push_back(file_.wholes(numbers));
    numbers.clear();
  };
  for (const Extent& e : extents) {
    if (e.fixed() || one) {
      numbers.push_back(e.fixed() ? e.value : -1);
      continue;
    }
    check(!e.odd, "export_onnx: an extent of {}, {}, follows from the size of the batch, but is no multiple of it",
          where, e.value);
    end_numbers();
    parts.push_back(e.factor == 1 ? batch_size() : node("Mul", {batch_size(), file_.wholes({e.factor})}));
  }
  if (parts.empty()) return file_.wholes(numbers);
  end_numbers();
  return parts.size() == 1 ? parts[0] : node("Concat", parts, {{"axis", std::int64_t{0}}});
}

std::string OperatorWriter::expanded(const Op& op, const std::string& x, const std::vector<Extent>& from,
                                     const std::vector<Extent>& to) {
  if (from == to) return x;
  // Expand keeps an extent where the shape has 1.
  std::vector<Extent> wanted = to;
  const std::size_t more = to.size() - from.size();
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] == to[more + i]) wanted[more + i] = {1};
  }
  return node("Expand", {x, shape_input(op.where(), wanted)});
}

void OperatorWriter::affine(const Op& op) {
  std::string y = in(op, 0);
  if (!(op.scalar("scale") == 1)) y = node("Mul", {y, number(op, op.scalar("scale"))});
  if (!(op.scalar("shift") == 0)) y = node("Add", {y, number(op, op.scalar("shift"))});
  give(op, y);
}

// x (1 + erf(x / sqrt(2))) / 2
void OperatorWriter::gelu(const Op& op) {
  const std::string x = in(op, 0), erf = node("Erf", {node("Mul", {x, number(op, 1 / std::numbers::sqrt2)})});
  give(op, node("Mul", {node("Mul", {x, number(op, 0.5)}), node("Add", {erf, number(op, 1)})}));
}

void OperatorWriter::softplus(const Op& op) {
  const double beta = op.real("a"), threshold = op.real("b");
  const std::string x = in(op, 0), scaled = beta == 1 ? x : node("Mul", {x, number(op, beta)});
  std::string y = node("Softplus", {scaled});
  if (beta != 1) y = node("Div", {y, number(op, beta)});
  // Above 20, softplus(x) rounds to x in f32, so a threshold of 20 or more needs no Where.
  if (threshold < 20) y = node("Where", {node("Greater", {scaled, number(op, threshold)}), x, y});
  give(op, y);
}

void OperatorWriter::clamp(const Op& op) {
  const double low = op.real("a"), high = op.real("b");
  give(op, node("Clip", {in(op, 0), std::isinf(low) ? "" : number(op, low), std::isinf(high) ? "" : number(op, high)}));
}

void OperatorWriter::pow_by(const Op& op) {
  if (has(op, 1)) return simple(op, "Pow");
  give(op, node("Pow", {in(op, 0), number(op, op.real("a"))}));
}

void OperatorWriter::divide_rounded(const Op& op) {
  const std::string a = in(op, 0), b = in(op, 1);
  const bool floors = op.kind == "divide_floor";
  if (is_floating(dtype(op))) {
    const std::string ratio = node("Div", {a, b});
    return give(op, floors ? node("Floor", {ratio}) : truncated(ratio));
  }
  // Mod has the divisor's sign; Div rounds toward 0.
  give(op, node("Div", {floors ? node("Sub", {a, node("Mod", {a, b})}) : a, b}));
}

void OperatorWriter::remainder(const Op& op) {
  const std::string a = in(op, 0), b = in(op, 1);
  if (!is_floating(dtype(op))) return give(op, node("Mod", {a, b}));
  give(op, node("Sub", {a, node("Mul", {node("Floor", {node("Div", {a, b})}), b})}));
}

void OperatorWriter::fill(const Op& op) {
  const std::vector<Extent>& to = shape(op.outputs[0]);
  const std::string one = number(op, op.scalar("value"));
  if (std::ranges::all_of(to, &Extent::fixed)) return give(op, node("Expand", {one, shape_input(op.where(), to)}));
  give(op, node("Expand", {one, node("Shape", {in(op, 0)})}));
}

void OperatorWriter::compare(const Op& op) {
  const bool equality = op.kind == "eq" || op.kind == "ne", masks = is_mask(value(op.inputs[0]).dtype);
  const auto negated = [&](const std::string& x, bool does) { return does ? node("Not", {x}) : x; };
  if (!has(op, 1) && masks && equality && op.scalar("value") == 0)
    return give(op, negated(mask(op, 0), op.kind == "eq"));
  if (has(op, 1) && op.kind == "ne" && op.inputs[0] == op.inputs[1] && is_floating(value(op.inputs[0]).dtype))
    return give(op, node("IsNaN", {in(op, 0)}));
  // ONNX does not compare u8 or order BOOL, and i64 cannot hold a fraction, a NaN, or a number beyond its range.
  DType type_of_both = masks ? DType::i64 : value(op.inputs[0]).dtype;
  if (type_of_both == DType::i64 && !has(op, 1) && !op.scalar("value").fits_int64()) type_of_both = DType::f64;
  const auto operand = [&](std::size_t i) {
    return value(op.inputs[i]).dtype == type_of_both ? in(op, i) : cast_to(in(op, i), onnx_type(type_of_both));
  };
  std::string a = operand(0), b;
  if (has(op, 1)) {
    b = operand(1);
  } else {
    b = file_.number(type_of_both, op.scalar("value"));
    if (op.whole("exchanged") != 0) std::swap(a, b);
  }
  const char* type = equality ? "Equal" : op.kind == "lt" ? "Less" : "LessOrEqual";
  give(op, negated(node(type, {a, b}), op.kind == "ne"));
}

void OperatorWriter::where(const Op& op) {
  const std::string condition = mask(op, 0);
  const auto is_mask = [&](std::size_t i) { return has(op, i) && value(op.inputs[i]).dtype == DType::boolean; };
  if (is_mask(1) && !has(op, 2) && op.scalar("value") == 0) return give(op, node("And", {condition, mask(op, 1)}));
  if (is_mask(2) && !has(op, 1) && op.scalar("value") == 1) return give(op, node("Or", {condition, mask(op, 2)}));
  const auto branch = [&](std::size_t i) { return has(op, i) ? in(op, i) : number(op, op.scalar("value")); };
  give(op, node("Where", {condition, branch(1), branch(2)}));
}

void OperatorWriter::cast(const Op& op) { give(op, cast_to(in(op, 0), onnx_type(dtype(op)))); }

void OperatorWriter::slice(const Op& op) {
  const std::int64_t axis = op.whole("axis"), step = op.whole("step");
  const Extent &start = op.extent("start"), &count = op.extent("count"),
               &size = shape(op.inputs[0])[static_cast<std::size_t>(axis)];
  if (op.whole("keepdim") == 0) {
    const std::string place = file_.whole(fixed(op, start, "start"));
    return give(op, node("Gather", {in(op, 0), place}, {{"axis", axis}}));
  }
  const auto to_end = [&](std::int64_t n, std::int64_t all) { return n == (all - start.value + step - 1) / step; };
  std::string end;
  if (start.fixed() && count.fixed()) {
    end = file_.wholes({count.value == 0 ? start.value : start.value + (count.value - 1) * step + 1});
  } else if (start.fixed() && !size.fixed() && to_end(count.value, size.value) && to_end(count.second, size.second)) {
    end = file_.wholes({kToEnd});
  } else {
    check(step == 1 && !start.odd && !count.odd && (start.factor != 0 || start.value == 0),
          "export_onnx: {} takes elements {} to {} of a batch, expected a multiple of its size", op.where(),
          start.value, start.value + count.value);
    check(start.factor == 0 || count.factor != 0,
          "export_onnx: {} takes {} elements from a place that follows from the size of the batch", op.where(),
          count.value);
    end = shape_input(op.where(), {{start.value + count.value, start.factor + count.factor}});
  }
  give(op,
       node("Slice", {in(op, 0), shape_input(op.where(), {start}), end, file_.wholes({axis}), file_.wholes({step})}));
}

// Returns the axes in the bit mask "axes": bit i stands for axis i.
std::vector<std::int64_t> OperatorWriter::masked_axes(const Op& op) const {
  std::vector<std::int64_t> axes;
  for (int i = 0; i < rank(op.inputs[0]); ++i) {
    if ((op.whole("axes") >> i & 1) != 0) axes.push_back(i);
  }
  return axes;
}

void OperatorWriter::flip(const Op& op) {
  const std::vector<std::int64_t> axes = masked_axes(op);
  const std::vector<std::int64_t> from(axes.size(), -1), to(axes.size(), kToStart), steps(axes.size(), -1);
  if (axes.empty()) return give(op, in(op, 0));
  give(op, node("Slice", {in(op, 0), file_.wholes(from), file_.wholes(to), file_.wholes(axes), file_.wholes(steps)}));
}

void OperatorWriter::pad(const Op& op) {
  std::vector<std::int64_t> widths = op.numbers("before");
  const std::vector<std::int64_t> after = op.numbers("after");
  widths.insert(widths.end(), after.begin(), after.end());
  if (std::ranges::all_of(widths, [](std::int64_t n) { return n == 0; })) return give(op, in(op, 0));
  give(op, node("Pad", {in(op, 0), file_.wholes(widths), number(op, op.scalar("value"))}));
}

void OperatorWriter::linear(const Op& op) {
  const std::string x = in(op, 0), w = in_type(op, 1), bias = in_type(op, 2);
  if (rank(op.inputs[0]) == 2) return give(op, node("Gemm", {x, w, bias}, {{"transB", std::int64_t{1}}}));
  const std::string y = node("MatMul", {x, node("Transpose", {w}, {{"perm", std::vector<std::int64_t>{1, 0}}})});
  give(op, bias.empty() ? y : node("Add", {y, bias}));
}

OnnxAttributes OperatorWriter::conv_attributes(const Op& op) const {
  const std::vector<std::int64_t> padding = op.numbers("padding"), w = fixed_shape(op, op.inputs[1]);
  std::vector<std::int64_t> pads = padding;
  pads.insert(pads.end(), padding.begin(), padding.end());
  return {{"kernel_shape", std::vector(w.begin() + 2, w.end())},
          {"strides", op.numbers("stride")},
          {"pads", pads},
          {"dilations", op.numbers("dilation")},
          {"group", op.whole("groups")}};
}

void OperatorWriter::conv(const Op& op) {
  give(op, node("Conv", {in(op, 0), in_type(op, 1), in_type(op, 2)}, conv_attributes(op)));
}

void OperatorWriter::conv_transpose(const Op& op) {
  const std::vector<std::int64_t> padding = op.numbers("padding"), stride = op.numbers("stride"),
                                  dilation = op.numbers("dilation"), w = fixed_shape(op, op.inputs[1]);
  std::vector<std::int64_t> more;
  for (std::size_t i = 0; i < stride.size(); ++i) {
    const std::int64_t from = fixed(op, shape(op.inputs[0])[2 + i], "shape"),
                       to = fixed(op, shape(op.outputs[0])[2 + i], "shape");
    more.push_back(to - ((from - 1) * stride[i] - 2 * padding[i] + dilation[i] * (w[2 + i] - 1) + 1));
  }
  OnnxAttributes attributes = conv_attributes(op);
  attributes.emplace_back("output_padding", more);
  give(op, node("ConvTranspose", {in(op, 0), in_type(op, 1)}, attributes));
}

void OperatorWriter::batch_norm(const Op& op) {
  std::string y = node("BatchNormalization", {in(op, 0), in(op, 1), in(op, 2), in(op, 4), in(op, 5)},
                       {{"epsilon", static_cast<float>(op.real("eps"))}});
  if (has(op, 3)) y = node("Add", {y, in(op, 3)});
  if (op.whole("relu") != 0) y = node("Relu", {y});
  give(op, y);
}

void OperatorWriter::row_norm(const Op& op) {
  const std::int64_t axes = op.whole("axes");
  const std::string x = in(op, 0);
  const float eps = static_cast<float>(op.real("eps"));
  if (op.whole("centered") == 0) {
    std::vector<std::int64_t> last;
    for (std::int64_t i = -axes; i < 0; ++i) last.push_back(i);
    const std::string mean = node("ReduceMean", {node("Mul", {x, x})}, {{"axes", last}});
    std::string y = node("Div", {x, node("Sqrt", {node("Add", {mean, number(op, op.real("eps"))})})});
    if (has(op, 1)) y = node("Mul", {y, in_type(op, 1)});
    if (has(op, 2)) y = node("Add", {y, in_type(op, 2)});
    return give(op, y);
  }
  const auto filled = [&](const std::vector<std::int64_t>& to, double with) {
    return node("Expand", {number(op, with), file_.wholes(to)});
  };
  const std::vector<Extent>& all = shape(op.inputs[0]);
  if (!has(op, 1) && !has(op, 2) && axes == 1 && all.size() == 3 && all[1].fixed()) {
    // Rows are the groups of group_norm().
    const std::vector<std::int64_t> rows{all[1].value};
    return give(op, node("InstanceNormalization", {x, filled(rows, 1), filled(rows, 0)}, {{"epsilon", eps}}));
  }
  std::string weight = in_type(op, 1);
  if (weight.empty()) {
    std::vector<std::int64_t> row;
    for (std::size_t i = all.size() - static_cast<std::size_t>(axes); i < all.size(); ++i)
      row.push_back(fixed(op, all[i], "shape"));
    weight = filled(row, 1);
  }
  give(op, node("LayerNormalization", {x, weight, in_type(op, 2)}, {{"axis", -axes}, {"epsilon", eps}}));
}

OperatorWriter::Windows OperatorWriter::windows(const Op& op) const {
  Windows w{op.numbers("kernel"), op.numbers("stride"), op.numbers("padding")};
  const std::vector<std::int64_t> padding = w.pads;
  for (std::size_t i = 0; i < padding.size(); ++i) {
    const std::int64_t from = fixed(op, shape(op.inputs[0])[2 + i], "shape"),
                       to = fixed(op, shape(op.outputs[0])[2 + i], "shape"),
                       after = (to - 1) * w.stride[i] + w.kernel[i] - from - padding[i];
    w.beyond = w.beyond || after > padding[i];
    w.pads.push_back(std::max(after, padding[i]));
  }
  return w;
}

void OperatorWriter::max_pool(const Op& op) {
  const Windows w = windows(op);
  simple(op, "MaxPool", w.attributes());
}

// ONNX's indices count from the start of the batch, so their remainder is the place in a plane.
void OperatorWriter::max_pool_places(const Op& op) {
  const Windows w = windows(op);
  const OnnxNames found = file_.nodes("MaxPool", {in(op, 0)}, w.attributes(), 2);
  const std::vector<Extent>& from = shape(op.inputs[0]);
  give(op, node("Mod", {found[1], file_.whole(from[2].value * from[3].value)}));
}

void OperatorWriter::avg_pool(const Op& op) {
  Windows w = windows(op);
  bool counts = op.whole("count_include_pad") != 0;
  std::string x = in(op, 0);
  if (w.beyond && counts) {
    // Padding counts as zeros, but what lies beyond the padding does not count.
    const std::vector<std::int64_t> p = op.numbers("padding");
    if (p[0] > 0 || p[1] > 0) x = node("Pad", {x, file_.wholes({0, 0, p[0], p[1], 0, 0, p[0], p[1]}), number(op, 0)});
    w.pads = {0, 0, w.pads[2] - p[0], w.pads[3] - p[1]};
    counts = false;
  }
  OnnxAttributes attributes = w.attributes();
  attributes.emplace_back("count_include_pad", std::int64_t{counts});
  give(op, node("AveragePool", {x}, attributes));
}

// Does not use LpPool, which takes absolute values.
void OperatorWriter::lp_pool(const Op& op) {
  const Windows w = windows(op);
  const double norm = op.real("norm");
  const std::string mean = node("AveragePool", {node("Pow", {in(op, 0), number(op, norm)})}, w.attributes());
  const std::string sum = node("Mul", {mean, number(op, static_cast<double>(w.kernel[0] * w.kernel[1]))});
  give(op, node("Pow", {sum, number(op, 1 / norm)}));
}

// Sets -infinity where a key comes after the query.
void OperatorWriter::causal(const Op& op) {
  const std::vector<Extent>& all = shape(op.inputs[0]);
  const std::int64_t queries = fixed(op, all[all.size() - 2], "shape"), keys = fixed(op, all.back(), "shape");
  std::string later;
  for (std::int64_t q = 0; q < queries; ++q) {
    for (std::int64_t k = 0; k < keys; ++k) later += static_cast<char>(q < k);
  }
  const std::int64_t extents[] = {queries, keys};
  give(op, node("Where", {file_.constant(OnnxType::boolean, extents, later),
                          number(op, -std::numeric_limits<double>::infinity()), in(op, 0)}));
}

void OperatorWriter::reduce(const Op& op) {
  const std::vector<std::int64_t> axes = masked_axes(op);
  if (axes.empty()) return give(op, in(op, 0));
  const std::int64_t keepdims = op.whole("keepdim");
  if (op.kind == "reduce_sum")
    return give(op, node("ReduceSum", {in(op, 0), file_.wholes(axes)}, {{"keepdims", keepdims}}));
  give(op, node("ReduceMax", {in(op, 0)}, {{"axes", axes}, {"keepdims", keepdims}}));
}

void OperatorWriter::sum_to(const Op& op) {
  const std::vector<Extent>&from = shape(op.inputs[0]), &to = shape(op.outputs[0]);
  const std::int64_t more = std::ssize(from) - std::ssize(to);
  std::vector<std::int64_t> axes;
  for (std::int64_t i = 0; i < std::ssize(from); ++i) {
    if (i < more || from[static_cast<std::size_t>(i)] != to[static_cast<std::size_t>(i - more)]) axes.push_back(i);
  }
  std::string y = in(op, 0);
  if (!axes.empty()) y = node("ReduceSum", {y, file_.wholes(axes)}, {{"keepdims", std::int64_t{1}}});
  give(op, more == 0 ? y : node("Reshape", {y, shape_input(op.where(), to, true)}));
}

void OperatorWriter::argmax(const Op& op) {
  const std::int64_t axis = op.whole("axis");
  const bool all = axis < 0;
  const std::string x = all ? node("Reshape", {in(op, 0), file_.wholes({-1})}) : in(op, 0);
  const bool keeps = !all && rank(op.outputs[0]) == rank(op.inputs[0]);
  const std::string y = node("ArgMax", {x}, {{"axis", all ? 0 : axis}, {"keepdims", std::int64_t{keeps}}});
  give(op, all ? node("Reshape", {y, shape_input(op.where(), shape(op.outputs[0]))}) : y);
}

void OperatorWriter::argsort(const Op& op) {
  const std::int64_t axis = op.whole("axis");
  const Extent& size = shape(op.inputs[0])[static_cast<std::size_t>(axis)];
  give(op, file_.nodes("TopK", {in(op, 0), shape_input(op.where(), {size})},
                       {{"axis", axis}, {"largest", op.whole("descending")}, {"sorted", std::int64_t{1}}}, 2)[1]);
}

// Expands both inputs, because GatherElements does not broadcast.
void OperatorWriter::take_along(const Op& op) {
  const auto axis = static_cast<std::size_t>(op.whole("axis"));
  std::vector<Extent> x = shape(op.inputs[0]), index = shape(op.inputs[1]);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i == axis || x[i] == index[i]) continue;
    (x[i] == Extent{1} ? x[i] : index[i]) = x[i] == Extent{1} ? index[i] : x[i];
  }
  give(op, node("GatherElements",
                {expanded(op, in(op, 0), shape(op.inputs[0]), x), expanded(op, in(op, 1), shape(op.inputs[1]), index)},
                {{"axis", op.whole("axis")}}));
}

void OperatorWriter::scatter(const Op& op) {
  const std::vector<Extent>&index = shape(op.inputs[1]), &src = shape(op.inputs[2]);
  std::string from = in(op, 2);
  if (index != src) {
    std::vector<std::int64_t> axes(index.size());
    std::iota(axes.begin(), axes.end(), 0);
    from = node("Slice", {from, file_.wholes(std::vector<std::int64_t>(index.size(), 0)), node("Shape", {in(op, 1)}),
                          file_.wholes(axes)});
  }
  OnnxAttributes attributes{{"axis", op.whole("axis")}};
  if (op.kind == "scatter_add") attributes.emplace_back("reduction", std::string("add"));
  give(op, node("ScatterElements", {in(op, 0), in(op, 1), from}, attributes));
}

void OperatorWriter::index_add(const Op& op) {
  const std::int64_t axis = op.whole("axis");
  std::vector<std::int64_t> along(static_cast<std::size_t>(rank(op.inputs[0])), 1);
  along[static_cast<std::size_t>(axis)] = -1;
  const std::string index =
      node("Expand", {node("Reshape", {in(op, 1), file_.wholes(along)}), node("Shape", {in(op, 2)})});
  const Scalar& alpha = op.scalar("alpha");
  const std::string src = alpha == 1 ? in(op, 2) : node("Mul", {in(op, 2), number(op, alpha)});
  give(op, node("ScatterElements", {in(op, 0), index, src}, {{"axis", axis}, {"reduction", std::string("add")}}));
}

void OperatorWriter::one_hot(const Op& op) {
  give(op, node("OneHot", {in(op, 0), file_.whole(op.whole("classes")), file_.wholes({0, 1})},
                {{"axis", std::int64_t{-1}}}));
}

void OperatorWriter::recurrent(const Op& op) {
  const bool lstm = op.kind == "lstm", gru = op.kind == "gru", batch_first = op.whole("batch_first") != 0;
  const std::vector<std::int64_t> states = fixed_shape(op, op.inputs[2]);
  const std::int64_t hidden = states[1];
  // The gates of an LSTM are i f g o in PyTorch and i o f g in ONNX; those of a GRU are r z n and z r n.
  const std::vector<std::size_t> order = lstm  ? std::vector<std::size_t>{0, 3, 1, 2}
                                         : gru ? std::vector<std::size_t>{1, 0, 2}
                                               : std::vector<std::size_t>{0};
  check(op.inputs.size() == (lstm ? 7 : 6) && states[0] == std::ssize(order) * hidden,
        "export_onnx: {} has weights that ONNX's operator has not", op.where());
  const auto ordered = [&](std::size_t input) {
    const std::string w = in_type(op, input);
    if (order.size() == 1) return w;
    const OnnxNames gates = file_.nodes("Split", {w, file_.wholes(std::vector<std::int64_t>(order.size(), hidden))},
                                        {{"axis", std::int64_t{0}}}, static_cast<int>(order.size()));
    OnnxNames chosen;
    for (const std::size_t gate : order) chosen.push_back(gates[gate]);
    return node("Concat", chosen, {{"axis", std::int64_t{0}}});
  };
  const auto first_axis = [&](const std::string& x) {
    return x.empty() ? x : node("Unsqueeze", {x, file_.wholes({0})});
  };
  const OnnxAttribute exchange = std::vector<std::int64_t>{1, 0, 2};
  const std::string bias = has(op, 3) ? node("Concat", {ordered(3), ordered(4)}, {{"axis", std::int64_t{0}}}) : "";
  OnnxAttributes attributes{{"hidden_size", hidden},
                            {"direction", std::string(op.whole("reverse") != 0 ? "reverse" : "forward")}};
  if (gru) attributes.emplace_back("linear_before_reset", std::int64_t{1});
  if (op.kind == "rnn_relu") attributes.emplace_back("activations", std::vector<std::string>{"Relu"});
  const std::string x = batch_first ? node("Transpose", {in(op, 0)}, {{"perm", exchange}}) : in(op, 0);
  const OnnxNames y = file_.nodes(lstm  ? "LSTM"
                                  : gru ? "GRU"
                                        : "RNN",
                                  {x, first_axis(ordered(1)), first_axis(ordered(2)), first_axis(bias), "",
                                   first_axis(in(op, 5)), first_axis(in(op, 6))},
                                  attributes, lstm ? 3 : 2);
  const std::string steps = node("Squeeze", {y[0], file_.wholes({1})});
  give(op, batch_first ? node("Transpose", {steps}, {{"perm", exchange}}) : steps);
  for (std::size_t k = 1; k < y.size(); ++k) give(op, node("Squeeze", {y[k], file_.wholes({0})}), k);
}

}  // namespace

void write_graph(OnnxFile& file, const TracedGraph& graph, const GraphNames& names,
                 const std::function<std::string(int value)>& weight) {
  OperatorWriter(file, graph, names, weight).write();
}

}  // namespace lockstep
