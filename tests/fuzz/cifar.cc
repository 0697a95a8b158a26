#include "lockstep/data/formats/cifar.h"

#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {

// A file of CIFAR-10's records.
Reader cifar() {
  constexpr std::size_t kRecord = 1 + 3072;
  std::string two = std::string(kRecord, 'a') + std::string(kRecord, 'b');
  two[0] = 1;
  two[kRecord] = 9;
  const std::string folder = file_in_scratch("cifar");
  return {.read =
              [folder](const std::string& bytes) {
                write_in_scratch("cifar/data_batch_1.bin", bytes);
                read_rows(read_cifar(folder).train.images);
              },
          .seeds = {two, two.substr(0, kRecord)},
          .repair = [](std::string& bytes) { bytes.resize((bytes.size() + kRecord - 1) / kRecord * kRecord); }};
}

}  // namespace lockstep::fuzz
