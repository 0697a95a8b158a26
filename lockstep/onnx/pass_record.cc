#include "lockstep/onnx/pass_record.h"

#include <algorithm>

#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/tensor/storage.h"

namespace lockstep {
namespace {

std::string in_module(const std::string& path) { return path.empty() ? "" : fmt::format(" in module '{}'", path); }

// Whether an operation returns the elements of its input, on another device or in another order of memory.
bool only_moves(std::string_view name) {
  return name == "to" || name == "pin" || name == "replicate" || name == "reorder" || name == "clone";
}

}  // namespace

std::string PassOperation::where() const { return fmt::format("'{}'{}", name, in_module(module)); }

std::string bytes_of(const Tensor& x) {
  const TracePause pause;
  const Tensor host = x.to_host().to(Layout::plain);
  host.wait();
  const View& view = host->view();
  return {static_cast<const char*>(view.data), static_cast<std::size_t>(view.bytes())};
}

PassRecord::PassRecord(Module& model, std::span<const Tensor> inputs) {
  for (const auto& [path, module] : model.named_modules()) paths_.emplace(module, path);
  const auto add_all = [&](const std::vector<std::pair<std::string, Parameter>>& named) {
    for (const auto& [name, p] : named) {
      const Tensor x = p.tensor();
      if (weights_.contains(x->storage().get())) continue;  // shared: the first name counts
      PassValue value{.source = ValueSource::weight};
      value.name = name;
      const int number = add(x, std::move(value));
      for (const Array& replica : x->parts) weights_.emplace(replica.storage().get(), number);
    }
  };
  add_all(model.named_parameters());
  add_all(model.named_buffers());
  for (const Tensor& x : inputs) add(x, {.source = ValueSource::input, .from_input = true});
}

std::string PassRecord::here() const {
  for (auto module = modules_.rbegin(); module != modules_.rend(); ++module) {
    if (const auto path = paths_.find(*module); path != paths_.end()) return path->second;
  }
  return "";
}

int PassRecord::add(const Tensor& x, PassValue value) {
  check(x->kind != Kind::cut,
        "export_onnx: {} is cut over a batch, expected whole tensors: export the model itself, "
        "not its DataParallel",
        x);
  value.shape = x.shape();
  value.dtype = x.dtype();
  values_.push_back(std::move(value));
  tensors_.push_back(x);
  const int number = static_cast<int>(values_.size()) - 1;
  numbers_[x.operator->()] = number;
  return number;
}

int PassRecord::find(const Tensor& x) const {
  if (const auto known = numbers_.find(x.operator->()); known != numbers_.end()) return known->second;
  // It may be another handle of a weight.
  const auto weight = x->parts.empty() ? weights_.end() : weights_.find(x->parts[0].storage().get());
  const bool all = weight != weights_.end() && values_[static_cast<std::size_t>(weight->second)].shape == x.shape();
  return all ? weight->second : -1;
}

int PassRecord::number_of(const Tensor& x, std::string_view user) {
  if (!x.defined()) return -1;
  if (const int known = find(x); known >= 0) {
    const std::string& unknown = values_[static_cast<std::size_t>(known)].unknown;
    check(unknown.empty(), "export_onnx: {} takes a result of {}, {}, which computes by other means than operations",
          user, unknown, x);
    return known;
  }
  return add(x, {.source = ValueSource::constant, .bytes = bytes_of(x)});
}

void PassRecord::operation(std::string_view name, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                           OpTraits traits) {
  PassOperation op{.name = std::string(name),
                   .kind = std::string(traits.kind.empty() ? name : traits.kind),
                   .module = here(),
                   .attributes = std::move(traits.attributes)};
  bool from_input = false;
  for (const Tensor& x : inputs) {
    op.inputs.push_back(number_of(x, op.where()));
    from_input =
        from_input || (op.inputs.back() >= 0 && values_[static_cast<std::size_t>(op.inputs.back())].from_input);
  }
  if (only_moves(name)) {
    numbers_[outputs[0].operator->()] = op.inputs[0];
    handles_.push_back(outputs[0]);
    return;
  }
  for (const Tensor& y : outputs) op.outputs.push_back(add(y, {.from_input = from_input}));
  operations_.push_back(std::move(op));
}

void PassRecord::same(const Tensor& x, const Tensor& y) {
  const int number = find(x);
  if (number < 0) return;
  numbers_[y.operator->()] = number;
  handles_.push_back(y);
}

void PassRecord::function(std::string_view name, std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  const bool from_input = std::ranges::any_of(inputs, [&](const Tensor& x) {
    const int number = x.defined() ? find(x) : -1;
    return number >= 0 && values_[static_cast<std::size_t>(number)].from_input;
  });
  for (const Tensor& y : outputs) {
    if (!y.defined() || find(y) >= 0) continue;
    add(y, {.from_input = from_input, .unknown = fmt::format("'{}'{}", name, in_module(here()))});
  }
}

void PassRecord::read(std::string_view what, const Tensor& x) {
  const int number = find(x);
  if (number < 0 || !values_[static_cast<std::size_t>(number)].from_input) return;
  fail(
      "export_onnx: '{}'{} reads elements that depend on the input, {}: what the program makes of them would be "
      "constant in the file",
      what, in_module(here()), x);
}

void PassRecord::write(const Tensor& to, const Tensor& from) {
  if (find(to) < 0 && find(from) < 0) return;
  fail("export_onnx: a write in place{}, to {}: expected operations that return results, such as where()",
       in_module(here()), to);
}

}  // namespace lockstep
