#include "lockstep/onnx/traced_graph.h"

#include <algorithm>

namespace lockstep {
namespace {

// What the program computes may depend on the batch size, on the elements, or on anything else that it reads.
constexpr std::string_view kDepends = "it depends on the size of the batch or on its elements";

class Merger {
 public:
  Merger(const TracedPass& first, const TracedPass& second) : first_(first), second_(second) {}

  TracedGraph graph() {
    const auto &a = first_.record.operations(), &b = second_.record.operations();
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      check(a[i].kind == b[i].kind && a[i].inputs == b[i].inputs && a[i].outputs == b[i].outputs &&
                a[i].attributes.size() == b[i].attributes.size(),
            "export_onnx: operation {} is {} in one pass and {} in another: {}", i, a[i].where(), b[i].where(),
            kDepends);
    }
    check(a.size() == b.size() && first_.outputs == second_.outputs,
          "export_onnx: one pass has {} operations, another {}: what the model computes depends on the size of the "
          "batch or on its elements",
          a.size(), b.size());
    for (std::size_t i = 0; i < first_.record.values().size(); ++i) {
      graph_.values.push_back(merged(first_.record.values()[i], second_.record.values().at(i), i));
      if (graph_.values.back().source == ValueSource::input) graph_.inputs.push_back(static_cast<int>(i));
    }
    graph_.outputs = first_.outputs;
    const std::vector<bool> needed = needed_operations();
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (needed[i]) graph_.operations.push_back(merged(a[i], b[i]));
    }
    return std::move(graph_);
  }

 private:
  Extent merged(std::int64_t a, std::int64_t b) const {
    if (a == b) return {a};
    check(first_.batch != second_.batch,
          "export_onnx: an extent is {} in one pass and {} in another of the same shapes", a, b);
    const bool linear = a % first_.batch == 0 && b % second_.batch == 0 && a / first_.batch == b / second_.batch;
    return linear ? Extent{a, a / first_.batch, false, b} : Extent{a, 0, true, b};
  }

  // The first operation that takes a value, for messages.
  std::string user_of(std::size_t value) const {
    for (const PassOperation& op : first_.record.operations()) {
      if (std::ranges::find(op.inputs, static_cast<int>(value)) != op.inputs.end()) return op.where();
    }
    return "the result";
  }

  GraphValue merged(const PassValue& a, const PassValue& b, std::size_t number) const {
    GraphValue value{.source = a.source, .dtype = a.dtype, .name = a.name, .bytes = a.bytes};
    check(a.shape.dim() == b.shape.dim() && a.dtype == b.dtype,
          "export_onnx: {} takes {} {} in one pass and {} {} in another: {}", user_of(number), a.shape,
          lockstep::name(a.dtype), b.shape, lockstep::name(b.dtype), kDepends);
    for (int i = 0; i < a.shape.dim(); ++i) value.shape.push_back(merged(a.shape[i], b.shape[i]));
    if (a.source != ValueSource::constant || (a.shape == b.shape && a.bytes == b.bytes)) return value;
    // Accepts a constant that one element fills, such as a state of zeros for each sample.
    const std::size_t size = item_size(a.dtype);
    value.bytes = a.bytes.substr(0, size);
    const auto filled = [&](const std::string& bytes) {
      for (std::size_t at = 0; at < bytes.size(); at += size) {
        if (bytes.compare(at, size, value.bytes) != 0) return false;
      }
      return !value.bytes.empty();
    };
    const bool fills = a.shape != b.shape && filled(a.bytes) && filled(b.bytes);
    check(fills,
          "export_onnx: {} takes a tensor of {} that no operation has made from the inputs and that differs between "
          "two passes: {}",
          user_of(number), a.shape, kDepends);
    return value;
  }

  GraphOperation merged(const PassOperation& a, const PassOperation& b) const {
    GraphOperation op{
        .name = a.name, .kind = a.kind, .module = a.module, .inputs = a.inputs, .outputs = a.outputs, .attributes = {}};
    for (std::size_t i = 0; i < a.attributes.size(); ++i) {
      const auto& [name, x] = a.attributes[i];
      const OpAttribute& y = b.attributes[i].second;
      if (const auto* whole = std::get_if<std::int64_t>(&x)) {
        op.attributes.emplace_back(name, merged(*whole, std::get<std::int64_t>(y)));
      } else if (const auto* number = std::get_if<Scalar>(&x)) {
        const Scalar& other = std::get<Scalar>(y);
        const auto is_nan = [](const Scalar& n) { return !(n == n); };
        check(*number == other || (is_nan(*number) && is_nan(other)),
              "export_onnx: the number {} of {} is {} in one pass and {} in another: {}", name, a.where(), *number,
              other, kDepends);
        op.attributes.emplace_back(name, *number);
      } else {
        const auto &m = std::get<std::vector<std::int64_t>>(x), &n = std::get<std::vector<std::int64_t>>(y);
        std::vector<Extent> all;
        for (std::size_t k = 0; k < m.size(); ++k) all.push_back(merged(m[k], n.at(k)));
        op.attributes.emplace_back(name, std::move(all));
      }
    }
    return op;
  }

  std::vector<bool> needed_operations() const {
    const auto& all = first_.record.operations();
    std::vector<bool> wanted(first_.record.values().size()), needed(all.size());
    for (const int output : first_.outputs) wanted[static_cast<std::size_t>(output)] = true;
    for (std::size_t i = all.size(); i-- > 0;) {
      needed[i] = std::ranges::any_of(all[i].outputs, [&](int y) { return wanted[static_cast<std::size_t>(y)]; });
      if (!needed[i]) continue;
      for (const int x : all[i].inputs) {
        if (x >= 0) wanted[static_cast<std::size_t>(x)] = true;
      }
    }
    return needed;
  }

  const TracedPass &first_, &second_;
  TracedGraph graph_;
};

}  // namespace

std::string GraphOperation::where() const {
  return module.empty() ? fmt::format("'{}'", name) : fmt::format("'{}' in module '{}'", name, module);
}

bool GraphOperation::has(std::string_view attribute) const {
  return std::ranges::any_of(attributes, [&](const auto& a) { return a.first == attribute; });
}

const std::variant<Extent, Scalar, std::vector<Extent>>& GraphOperation::find(std::string_view attribute) const {
  for (const auto& [name, value] : attributes) {
    if (name == attribute) return value;
  }
  fail("export_onnx: {} does not say its {}", where(), attribute);
}

const Extent& GraphOperation::extent(std::string_view attribute) const { return std::get<Extent>(find(attribute)); }
double GraphOperation::real(std::string_view attribute) const { return scalar(attribute).to<double>(); }
const Scalar& GraphOperation::scalar(std::string_view attribute) const { return std::get<Scalar>(find(attribute)); }

std::int64_t GraphOperation::whole(std::string_view attribute) const {
  const Extent& e = extent(attribute);
  check(e.fixed(), "export_onnx: the {} of {} follows from the size of the batch", attribute, where());
  return e.value;
}

std::vector<std::int64_t> GraphOperation::numbers(std::string_view attribute) const {
  std::vector<std::int64_t> all;
  for (const Extent& e : std::get<std::vector<Extent>>(find(attribute))) {
    check(e.fixed(), "export_onnx: the {} of {} follows from the size of the batch", attribute, where());
    all.push_back(e.value);
  }
  return all;
}

TracedGraph graph_of_passes(const TracedPass& first, const TracedPass& second) { return Merger(first, second).graph(); }

}  // namespace lockstep
