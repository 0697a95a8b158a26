// Internal: what a tensor is made of. Code of the library reads it with `->`, also of an undefined tensor, which has no
// parts:
//
//   if (x->kind == Kind::cut) return x->parts[x->at->lowest_shard()];
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/autograd/tensor.h"

namespace lockstep {

struct GradMeta;  // autograd/node.h
class Placement;  // autograd/placement.h

enum class Kind : std::uint8_t { whole, cut, replicated };

// The batch axis of a cut tensor. Its extent is outer * samples * inner, so [B, T, C] can become [B * T, C] and back
// without moving an element.
struct Cut {
  int axis = 0;
  std::int64_t outer = 1;
  std::int64_t inner = 1;
  bool operator==(const Cut&) const = default;
};

struct TensorImpl {
  Kind kind = Kind::whole;
  Shape shape;
  Cut cut;
  // Null for parameters and whole tensors. Inside per_shard(), whole tensors also have a placement.
  std::shared_ptr<const Placement> at;
  // A cut tensor has one part per slot. A replicated tensor has one part per device that already holds a copy.
  mutable std::vector<Array> parts;
  std::shared_ptr<GradMeta> grad;
  // Names a parameter in errors.
  std::string label;
  // Arrays that live as long as the tensor. Otherwise a compute lane could reuse a block that an exchange with other
  // processes still reads, and would wait for the exchange.
  std::vector<Array> held;

  bool defined() const { return !parts.empty(); }
  std::vector<Device> devices() const;
  std::string describe() const;
  // The elements of an uncut tensor on `device`. A replicated result of a batch is copied there; others throw.
  Array on(Device device) const;
  // The elements of an uncut tensor, from its first part.
  const Array& array() const;
  const View& view() const { return array().view(); }
  const std::shared_ptr<Storage>& storage() const { return array().storage(); }
  const Resource& resource() const { return array().resource(); }

  static Tensor tensor(std::shared_ptr<TensorImpl> impl) { return Tensor(std::move(impl)); }
  // What all handles of a defined tensor share.
  static TensorImpl& of(const Tensor& x) { return *x.impl_; }
  // The number of handles.
  static std::int64_t handles(const Tensor& x) { return x.impl_.use_count(); }
};

// Makes a whole tensor from one shard, as per_shard() does. `at` must contain that shard only.
Tensor shard_tensor(std::shared_ptr<const Placement> at, Array array);
// Makes a cut tensor. parts[i] belongs to slot i of `at`. `cut` tells which axis has the samples.
Tensor cut_tensor(std::shared_ptr<const Placement> at, Cut cut, std::vector<Array> parts);
// Makes a replicated tensor. `at` is the batch that the values were computed from, or null for parameters. The batch's
// other devices get a copy of the first part when they need it.
Tensor replicated_tensor(std::vector<Array> parts, std::shared_ptr<const Placement> at = nullptr);

}  // namespace lockstep
