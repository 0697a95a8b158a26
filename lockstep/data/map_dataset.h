// Transforms of examples as they are loaded, such as augmentation.
//
//   MapDataset brighter(images, [](Example e, RandomKey) { return Example{clamp(e[0] * 1.1, 0, 1), e[1]}; });
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "lockstep/data/dataset.h"

namespace LOCKSTEP_API lockstep {

// `inner` with `transform` applied to each example as it is loaded. Pass a shared_ptr if several data sets share
// `inner`.
class MapDataset : public Dataset {
 public:
  using Transform = std::function<Example(Example example, RandomKey key)>;
  MapDataset(std::shared_ptr<const Dataset> inner, Transform transform);
  template <std::derived_from<Dataset> D>
  MapDataset(D inner, Transform transform)
      : MapDataset(std::make_shared<const D>(std::move(inner)), std::move(transform)) {}
  std::int64_t size() const override { return inner_->size(); }
  Example get(std::int64_t index) const override;
  Example get(std::int64_t index, RandomKey key) const override;
  // Applies the transform, too, because no recipe names it; uses the key of get(index).
  Example raw(std::int64_t index) const override;

 private:
  std::shared_ptr<const Dataset> inner_;
  Transform transform_;
};

}  // namespace lockstep
