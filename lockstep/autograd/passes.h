// Internal: the backward passes that a sum of gradients is of. A pass and its losses are one batch: if anything of it
// fails, the gradients of all its parameters are worth nothing.
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

  // Adds the data of the losses, without repetition.
  void list_losses(std::vector<Resource>& all) const;

  // Returns whether `sums`, made of gradients of these passes, have to be dropped, and forgets the passes then: the
  // program knows that all of them have failed. Until it knows, the sums stay, so that a step of them fails. If it
  // knows of some of the passes only, the sums stay as well: the others are lost with them. Whoever reads the sums
  // (`read`) learns of it, because the failure is reported again. Adding to the sums reports nothing, because nobody
  // may ever read the gradient of a parameter that no optimizer has.
  bool drop_failed(Engine& engine, std::span<const Array> sums, bool read);
  // Unlists passes that cannot fail any more if there are many. They add up for as long as a program runs if it trains
  // a parameter with no optimizer, and does not freeze it.
  void forget_good(Engine& engine);

 private:
  std::vector<std::shared_ptr<FailureGroup>> all_;
  // Good passes were here that are not listed any more.
  bool forgot_ = false;
  // The sums are lost, and the program knows the failure, but nobody has read the sums since.
  bool lost_ = false;
  std::size_t many_ = 64;
  std::uint64_t reports_ = 0;  // Engine::reports() when drop_failed() looked
};

}  // namespace lockstep
