// Modules by name, which their owner calls.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// Holds modules under the caller's names, in the order in which they were added. The owner calls them. M is the
// modules' class; the default works for modules with one input.
//
//   ModuleDict<> choices;
//   Net() {
//     choices.append<Conv2d>("conv", {.in_channels = 10, .out_channels = 10, .kernel_size = 3});
//     choices.append("pool", MaxPool2d({.kernel_size = 3}));
//     add("choices", choices);
//   }
//   Tensor forward(const Tensor& x) override { return choices["conv"](x); }
template <typename M = Module>
class ModuleDict : public Module {
 public:
  using Item = std::pair<std::string, M*>;

  // Makes an N in place, from its options or from other arguments, and returns it.
  template <typename N>
  requires std::is_base_of_v<M, N> N& append(std::string key, const typename N::Options& options) {
    return append(std::move(key), std::make_shared<N>(options));
  }
  template <typename N, typename... Args>
  requires std::is_base_of_v<M, N> N& append(std::string key, Args&&... args) {
    return append(std::move(key), std::make_shared<N>(std::forward<Args>(args)...));
  }
  template <typename N>
  requires std::is_base_of_v<M, N> N& append(std::string key, N&& module) {
    return append(std::move(key), std::make_shared<N>(std::move(module)));
  }
  template <typename N>
  requires std::is_base_of_v<M, N> N& append(std::string key, std::shared_ptr<N> module) {
    N& made = *module;
    add(key, std::move(module));
    items_.emplace_back(std::move(key), &made);
    return made;
  }

  std::size_t size() const { return items_.size(); }
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  // Module::parameter() finds parameters, by paths such as "conv.weight".
  M& operator[](std::string_view key) const {
    M* const module = find(key);
    if (!module) fail("module dict: no module '{}', there are {}", key, keys());
    return *module;
  }
  // Names and modules: for (const auto& [name, module] : dict.items()).
  const std::vector<Item>& items() const { return items_; }

 private:
  M* find(std::string_view key) const {
    for (const auto& [name, module] : items_) {
      if (name == key) return module;
    }
    return nullptr;
  }
  std::string keys() const {
    std::string text;
    for (const Item& item : items_) text += (text.empty() ? "" : ", ") + item.first;
    return text.empty() ? "none" : text;
  }

  std::vector<Item> items_;  // children() own them
};

}  // namespace lockstep
