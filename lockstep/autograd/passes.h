// Internal: the backward passes from which a sum of gradients comes. A pass and its losses are one batch: if any of its
// tasks fails, the gradients of all its parameters are invalid.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/engine/failure_group.h"
#include "lockstep/tensor/array.h"

namespace lockstep {

class Engine;

class Passes {
 public:
  // Does nothing for null, and for a pass that is there already.
  void add(const std::shared_ptr<FailureGroup>& pass);
  void add(const Passes& others);
  bool empty() const { return all_.empty() && !forgot_; }

  // Appends the data of the passes' losses to `all`, each once.
  void list_losses(std::vector<Resource>& all) const;

  // Returns whether `sums`, made of gradients of these passes, must be dropped; if so, forgets the passes, because the
  // program knows that all of them have failed. Until it knows, the sums stay, so that a step that uses them fails. If
  // it knows of only some of the passes, the sums stay as well, because they also have the gradients of other passes.
  // Whoever reads such sums (`read`) gets the failure reported again. Adding to the sums reports nothing, because
  // nobody may ever read the gradient of a parameter that no optimizer has.
  bool drop_failed(Engine& engine, std::span<const Array> sums, bool read);
  // Removes passes that cannot fail any more, if there are many. Otherwise the list grows as long as a program runs
  // that computes gradients of a parameter that no optimizer has.
  void forget_good(Engine& engine);

 private:
  std::vector<std::shared_ptr<FailureGroup>> all_;
  // Whether forget_good() has removed passes.
  bool forgot_ = false;
  // The sums are lost, and the program knows the failure, but nobody has read the sums since.
  bool lost_ = false;
  std::size_t many_ = 64;
  std::uint64_t reports_ = 0;  // Engine::reports() when drop_failed() looked
};

}  // namespace lockstep
