#include "lockstep/data/formats/csv.h"

#include <algorithm>

#include "lockstep/data/table_dataset.h"
#include "tests/data/idx_files.h"
#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {
namespace {

const std::vector<std::string_view> kCsvWords{
    ",",      ";", "\t", "\"",   "\"\"",   "\n",     "\r\n", "\r",   "\xef\xbb\xbf", "nan",
    "inf",    "?", "NA", "0x10", "-1e400", "1e-400", "1",    "-0.5", "a,b\n",        std::string_view("\0", 1),
    "1,2,3\n"};

const std::vector<std::string> kTables{
    "id,size,\"the \"\"name\"\"\",kind\n1,2.5,\"a,b\",x\n2,-3e4,\"c\nd\",y\n\n3,NA, \"\" ,x\r\n4,+5,e,y\n",
    "x,y,kind\n1,2,a\n2,3,b\n3,,a\n4,5,b\n5,6,a\n6,7,b\n"};

}  // namespace

// A table, and what training makes of it.
Reader csv() {
  return {.read =
              [](const std::string& bytes) {
                const Table table = parse_csv(bytes, "fuzz", {.skip_broken = !bytes.empty() && bytes[0] == '?'});
                const SplitRows rows = split_rows(table, 0.1);
                try {
                  const TableSchema schema = make_table_schema(table, rows, {});
                  const TableDataset data(table, schema, rows.train);
                  for (std::int64_t i = 0; i < std::min<std::int64_t>(data.size(), 20); ++i) data.get(i);
                } catch (const Error&) {  // a table, but none to learn from
                }
              },
          .seeds = kTables,
          .words = kCsvWords,
          .memory_per_byte = 100};
}

Reader csv_gz() {
  return {.read = [](const std::string& bytes) { read_csv(write_in_scratch("table.csv.gz", bytes)); },
          .seeds = {gzip(kTables[0]), gzip(kTables[1]) + gzip("7,8,a\n")},
          .words = kCsvWords,
          .repair =
              [](std::string& bytes) {
                if (!bytes.starts_with("\x1f\x8b")) bytes = gzip(bytes);
              },
          .memory_per_byte = 20 * 1032};  // what deflate packs, and cells of one byte
}

}  // namespace lockstep::fuzz
