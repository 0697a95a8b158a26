#include "lockstep/train/model_graph.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "lockstep/autograd/forward_trace.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/nn/summary.h"
#include "lockstep/tensor/storage.h"

namespace lockstep {
namespace {

// Returns whether the operation only copies, converts, or moves its input.
bool moves_elements(std::string_view name) {
  return name == "to" || name == "pin" || name == "replicate" || name == "reorder" || name == "clone";
}

// Returns a name that graphs allow: words of letters, digits, and ._- between slashes.
std::string graph_name(std::string_view text) {
  std::string name;
  for (const char c : text) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    name += c == '.' ? '/' : plain ? c : '_';
  }
  return name;
}

class GraphTrace final : public ForwardTrace {
 public:
  GraphTrace(Module& model, std::span<const Tensor> inputs) {
    for (const auto& [path, module] : model.named_modules()) modules_.emplace(module, std::pair(path, module->kind()));
    const auto add_weights = [&](const std::vector<std::pair<std::string, Parameter>>& named) {
      for (const auto& [name, p] : named) {
        for (const Array& replica : p.tensor()->parts) weights_.try_emplace(replica.storage().get(), name);
      }
    };
    add_weights(model.named_parameters());
    add_weights(model.named_buffers());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      add(inputs[i], {.name = inputs.size() == 1 ? "input" : fmt::format("input_{}", i), .op = "Input"});
    }
  }

  std::vector<ModelNode> take() { return std::move(nodes_); }

  void operation(std::string_view name, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                 OpTraits) override {
    if (moves_elements(name) && !inputs.empty() && !outputs.empty()) return same(inputs[0], outputs[0]);
    const auto [path, kind] = here();
    ModelNode node{.op = std::string(name), .module = kind};
    for (const Tensor& x : inputs) {
      if (x.defined()) node.inputs.push_back(source_of(x, path));
    }
    node.name = (path.empty() ? "" : graph_name(path) + "/") + graph_name(name);
    add_node(std::move(node), outputs);
  }
  void same(const Tensor& x, const Tensor& y) override { remember(y, source_of(x, here().first)); }
  void function(std::string_view name, std::span<const Tensor> inputs, std::span<const Tensor> outputs) override {
    const bool is_known = std::ranges::all_of(
        outputs, [&](const Tensor& y) { return !y.defined() || sources_.contains(y.operator->()); });
    if (!is_known) operation(name, inputs, outputs, {});
  }
  void read(std::string_view, const Tensor&) override {}
  void write(const Tensor& to, const Tensor& from) override { remember(to, source_of(from, here().first)); }
  void enter(const void* module) override { stack_.push_back(module); }
  void leave() override { stack_.pop_back(); }

 private:
  std::pair<std::string, std::string> here() const {
    for (auto module = stack_.rbegin(); module != stack_.rend(); ++module) {
      if (const auto found = modules_.find(*module); found != modules_.end()) return found->second;
    }
    return {};
  }

  void remember(const Tensor& x, const std::string& node) {
    sources_[x.operator->()] = node;
    kept_.push_back(x);
  }

  void add(const Tensor& x, ModelNode node) { add_node(std::move(node), {&x, 1}); }

  void add_node(ModelNode node, std::span<const Tensor> outputs) {
    const std::string name = node.name;
    for (int again = 1; !names_.insert(node.name).second; ++again) node.name = fmt::format("{}_{}", name, again);
    for (const Tensor& y : outputs) {
      if (!y.defined()) continue;
      node.outputs.push_back(y.shape());
      remember(y, node.name);
    }
    nodes_.push_back(std::move(node));
  }

  // Returns the name of the node that made x; makes one for a weight and for a constant.
  std::string source_of(const Tensor& x, const std::string& path) {
    if (const auto known = sources_.find(x.operator->()); known != sources_.end()) return known->second;
    const auto weight = x->parts.empty() ? weights_.end() : weights_.find(x->parts[0].storage().get());
    if (weight != weights_.end()) {
      const std::string name = graph_name(weight->second);
      if (names_.contains(name)) return name;
      add(x, {.name = name, .op = "Parameter"});
    } else {
      add(x, {.name = (path.empty() ? "" : graph_name(path) + "/") + "constant", .op = "Constant"});
    }
    return nodes_.back().name;
  }

  std::vector<ModelNode> nodes_;
  std::set<std::string> names_;
  std::map<const void*, std::string> sources_;  // by address of the handle
  std::map<const void*, std::string> weights_;  // by address of the memory
  std::map<const void*, std::pair<std::string, std::string>> modules_;
  std::vector<const void*> stack_;
  std::vector<Tensor> kept_;  // keeps addresses from being reused
};

}  // namespace

std::vector<ModelNode> trace_model(Module& model, std::span<const Tensor> inputs, const std::function<void()>& call) {
  std::vector<ModelNode> nodes;
  const auto known = [](const auto& p) { return p.second.initialized() && p.second.shape_known(); };
  const bool settled =
      std::ranges::all_of(model.named_parameters(), known) && std::ranges::all_of(model.named_buffers(), known);
  // summarize_layers() runs its function in evaluation mode and restores the random numbers.
  summarize_layers(model, [&] {
    if (!settled) call();
    GraphTrace trace(model, inputs);
    call();
    nodes = trace.take();
  });
  return nodes;
}

}  // namespace lockstep
