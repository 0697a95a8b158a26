// Several data sets, one after the other.
//
//   ConcatDataset all(photos_of_2023, photos_of_2024);
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.h"

namespace LOCKSTEP_API lockstep {

// The examples of all parts, in their order: torch.utils.data.ConcatDataset. Throws without parts.
class ConcatDataset : public Dataset {
 public:
  explicit ConcatDataset(std::vector<std::shared_ptr<const Dataset>> parts);
  template <std::derived_from<Dataset> First, std::derived_from<Dataset>... Others>
  requires(sizeof...(Others) > 0) explicit ConcatDataset(First first, Others... others)
      : ConcatDataset(
            {std::make_shared<const First>(std::move(first)), std::make_shared<const Others>(std::move(others))...}) {}
  std::int64_t size() const override { return ends_.back(); }
  Example get(std::int64_t index) const override;
  Example get(std::int64_t index, RandomKey key) const override;
  Example raw(std::int64_t index) const override;

 private:
  // Returns the part that has the example, and the index of the example in that part.
  std::pair<const Dataset&, std::int64_t> place_of(std::int64_t index) const;

  std::vector<std::shared_ptr<const Dataset>> parts_;
  std::vector<std::int64_t> ends_;  // the number of examples up to the end of each part
};

}  // namespace lockstep
