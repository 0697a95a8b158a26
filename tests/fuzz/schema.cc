#include "lockstep/task/data_schema.h"
#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {

Reader schema() {
  const TableColumn number{.name = "x", .mean = 0.5, .missing = true};
  const TableColumn kind{.name = "k\xff", .kind = TableColumn::Kind::category, .categories = {"a", "b"}};
  const DataSchema rows{.classes = {"no", "yes"},
                        .input = {3},
                        .outputs = 2,
                        .table = TableSchema{.columns = {number, kind},
                                             .target = "y",
                                             .has_header = true,
                                             .table_columns = 3,
                                             .classes = {"no", "yes"},
                                             .reason = "the target has 2 texts"}};
  const DataSchema arrays{.format = DataFormat::npy,
                          .task = TaskKind::regression,
                          .input = {1, 4, 4},
                          .outputs = 1,
                          .array = ArraySchema{.row = {4, 4},
                                               .input = {1, 4, 4},
                                               .task = TaskKind::regression,
                                               .target_mean = {1},
                                               .target_stddev = {2}},
                          .target_mean = {1},
                          .target_stddev = {2}};
  const DataSchema pictures{.format = DataFormat::images,
                            .classes = {"cat", "dog"},
                            .input = {3, 8, 8},
                            .outputs = 2,
                            .image = ImageSchema{8, 8, 3, {0.5, 0.5, 0.5}, {0.2, 0.2, 0.2}}};
  return {.read =
              [](const std::string& bytes) {
                const DataSchema found = DataSchema::from_json(bytes);
                check(DataSchema::from_json(found.json()) == found, "a schema does not come back from its JSON");
              },
          .seeds = {rows.json(), arrays.json(), pictures.json()},
          .words = json_words({"format", "task", "classes", "input", "outputs", "table", "array", "image", "bytes:ff",
                               "csv", "images", "npy", "text", "regression"}),
          .memory_per_byte = 60};
}

}  // namespace lockstep::fuzz
