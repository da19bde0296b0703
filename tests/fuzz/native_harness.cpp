// Fuzzing of the native engine. An input describes a packed model and, with -DSEARCH, what is asked of it: the harness
// builds the file, so that most inputs get past the checks of sizes, damages it as the input says, loads it and searches.
//
// libFuzzer calls LLVMFuzzerTestOneInput. With -DREPLAY there is a main instead, which runs files and random inputs.
// The file has exactly its size in memory, so that the sanitizer sees each read beyond it.
#include "python_interface.cpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#ifndef SEARCH
#define SEARCH 0
#endif

// Kernels that are not compiled, since this machine does not have their instructions
#ifdef WITHOUT_AVX2
const regard::Kernels* regard::avx2_kernels() { return portable_kernels(); }
#endif
#ifdef WITHOUT_AVX512
const regard::Kernels* regard::avx512_kernels() { return portable_kernels(); }
#endif

namespace {

using regard::Result;
using regard::Shape;

enum : uint8_t { RAW, FITTED, DAMAGED };  // the bytes as they are; a model that must load; a model with damage

struct Plan {  // the beginning of an input
    uint8_t form, kernels, sane, damages;
    uint32_t seed;  // of the weights
    struct {
        uint32_t place;
        int32_t value;
    } damage[4];
    int32_t grow;  // bytes that are put behind the file or cut off
    uint8_t beam, rows, best, top_k, lanes, workers, rows_at_once, flags;
    uint8_t count, lengths[3], limits[3], begin, end, unspeakable;
    float length_penalty, patience, temperature, top_p, min_p, repetition_penalty;
};

// The size of the packed file of a shape, computed without the code of the engine
class Size {
public:
    explicit Size(const Shape& shape) : s(shape), width(up(s.width, 16)), entry(__int128(s.groups) * (s.key_width + s.value_width)) {
        add(sizeof(Shape));
        matrix(s.target_vocabulary, s.width, s.int8);
        if (!s.decoder_only) {
            add(__int128(s.target_vocabulary) * width * (s.int8 ? 2 : 4));
            if (s.has_screen && !s.int8) matrix(s.target_vocabulary, s.width, true);
            if (s.has_screen) add(8);
        }
        if (!s.one_target_table) table(s.target_vocabulary);
        if (s.positions) add(s.max_length * width * 4);
        if (!s.decoder_only) {
            if (s.positions) add(s.max_length * width * 4);
            if (!s.one_source_table) table(s.source_vocabulary);
            if (s.embedding_norm) norm();
            for (int i = 0; i < s.encoder_layers; ++i) layer(false);
            if (s.pre_norm) norm();
            matrix(s.decoder_layers * entry, s.width, s.int8);
        }
        if (s.embedding_norm) norm();
        for (int i = 0; i < s.decoder_layers; ++i) layer(!s.decoder_only);
        if (s.pre_norm) norm();
    }
    __int128 bytes() const { return up(at, 8) + 16; }  // with the checksum

private:
    const Shape& s;
    __int128 at = 0, width, entry;

    static __int128 up(__int128 n, int multiple) { return (n + multiple - 1) / multiple * multiple; }
    void add(__int128 bytes) { at = up(at, 64) + bytes; }
    void norm() { add(4 * width), add(4 * width); }
    void matrix(__int128 columns, __int128 depth, bool int8) {
        const __int128 padded = up(columns, 16);
        add(padded * (int8 ? up(depth, 4) : depth * (s.fixed ? 3 : 4)));
        if (int8 || s.fixed) add(4 * padded);
        if (int8) add(4 * padded);
        add(4 * padded);
    }
    void table(__int128 tokens) {
        if (!s.int8 || s.decoder_only) return matrix(tokens, s.width, s.int8);
        add(4 * tokens), add(2 * tokens * width);
    }
    void layer(bool cross) {
        const __int128 keys = __int128(s.heads) * s.key_width, values = __int128(s.heads) * s.value_width;
        norm(), matrix(keys + entry, s.width, s.int8), matrix(s.width, values, s.int8);
        if (cross) norm(), matrix(keys, s.width, s.int8), matrix(s.width, values, s.int8);
        norm(), matrix(s.gated ? 2 * up(s.hidden, 16) : s.hidden, s.width, s.int8), matrix(s.width, s.hidden, s.int8);
    }
};

constexpr int WIDEST = SEARCH ? 40 : 17;  // loading takes time in proportion to the file

int one_to(int most, int32_t any) { return 1 + int(uint32_t(any) % uint32_t(most)); }

Shape fitted(Shape s) {  // a small shape that the engine accepts
    std::memcpy(s.magic, "regard-6", 8);
    s.decoder_only &= 1, s.rotary &= 1, s.int8 &= 1, s.fixed &= ~s.int8 & 1, s.has_screen &= ~s.decoder_only & 1;
    s.width = one_to(WIDEST, s.width), s.hidden = one_to(WIDEST, s.hidden), s.groups = one_to(3, s.groups);
    s.heads = s.groups * one_to(3, s.heads), s.key_width = one_to(WIDEST / 2, s.key_width), s.value_width = one_to(WIDEST, s.value_width);
    if (s.rotary) s.key_width += s.key_width & 1;
    s.encoder_layers = one_to(2, s.encoder_layers), s.decoder_layers = one_to(2, s.decoder_layers);
    s.max_length = one_to(12, s.max_length), s.target_vocabulary = one_to(2 * WIDEST, s.target_vocabulary);
    s.source_vocabulary = s.one_source_table ? s.target_vocabulary : one_to(2 * WIDEST, s.source_vocabulary);
    s.size = int64_t(Size(s).bytes());
    return s;
}

void add_checksum(std::vector<uint8_t>& file) {
    uint64_t sums[2] = {0, 0}, word;
    const size_t end = file.size() - sizeof sums;
    for (size_t i = 0; i + sizeof word <= end; i += sizeof word) {
        std::memcpy(&word, &file[i], sizeof word);
        sums[1] += sums[0] += word;
    }
    std::memcpy(&file[end], sums, sizeof sums);
}

std::vector<uint8_t> file_of(const Plan& plan, Shape shape, const uint8_t* body, size_t size) {
    if (plan.form == RAW) return {body, body + size};
    shape = fitted(shape);
    std::vector<uint8_t> file(size_t(shape.size));
    std::minstd_rand random(plan.seed);
    for (size_t at = sizeof shape; SEARCH && at + 4 <= file.size(); at += 4) {  // which loading does not look at
        const float number = float(random()) * 0x1p-30f - 1.0f;
        if (plan.sane || size < 4) std::memcpy(&file[at], &number, 4);
        else std::memcpy(&file[at], body + at / 4 % (size / 4) * 4, 4);
    }
    std::memcpy(file.data(), &shape, sizeof shape);
    if (plan.form == DAMAGED) {
        for (int i = 0; i < plan.damages % 5 && i < 4; ++i) {  // mostly of the header
            const size_t place = plan.damage[i].place % (plan.damage[i].place & 1 ? sizeof shape : file.size() - 4) / 4 * 4;
            std::memcpy(&file[place], &plan.damage[i].value, 4);
        }
        file.resize(size_t(std::max<int64_t>(int64_t(file.size()) + plan.grow % 4096, 0)));
        if (file.size() < sizeof shape || !(plan.flags & 128)) return file;
        const int64_t size = int64_t(file.size());
        std::memcpy(&file[8], &size, 8);
    }
    add_checksum(file);
    return file;
}

struct Texts {  // the arrays of a request
    std::vector<int32_t> sources, limits, unspeakable;
    std::vector<int64_t> offsets{0}, uniform_offsets{0};
    std::vector<double> uniform;
    regard::Request request{};

    Texts(const Plan& p, const Shape& s) {
        std::minstd_rand random(p.seed + 1);
        const int vocabulary = s.decoder_only ? s.target_vocabulary : s.source_vocabulary, longest = std::min(s.max_length, 12);
        request.rows = one_to(4, p.rows);
        for (int i = 0; i < p.count % 4; ++i) {
            for (int j = 0; j < 1 + p.lengths[i % 3] % longest; ++j) sources.push_back(int32_t(random() % uint32_t(vocabulary)));
            limits.push_back(1 + p.limits[i % 3] % longest + (p.flags & 32 ? int(p.end) - 100 : 0));  // perhaps too long
            offsets.push_back(int64_t(sources.size()));
            for (int j = 0; j < request.rows * limits.back(); ++j) uniform.push_back(double(random()) / double(random.max()));
            uniform_offsets.push_back(int64_t(uniform.size()));
        }
        if (p.flags & 64 && !sources.empty()) sources[p.end % sources.size()] += p.begin * 1000003 - 4;  // perhaps not in the vocabulary
        for (int i = 0; i < p.unspeakable % 8; ++i) unspeakable.push_back(int32_t(random() % uint32_t(vocabulary + 5)) - 2);
        request.count = int64_t(limits.size()), request.sources = sources.data(), request.offsets = offsets.data();
        request.limits = limits.data(), request.uniform = uniform.data(), request.uniform_offsets = uniform_offsets.data();
        request.never_generated = unspeakable.data(), request.never_generated_count = int32_t(unspeakable.size());
        request.begin = p.begin % (s.target_vocabulary + (p.flags & 64 ? 3 : 0)), request.end = p.end % s.target_vocabulary;
        request.beam = p.beam % 6, request.best = one_to(6, p.best), request.top_k = p.top_k % 8;
        request.power_penalty = p.flags & 1, request.alignment = p.flags >> 1 & 1;
        request.lanes = p.lanes > 250 ? 2 : 1, request.workers = p.workers > 250 ? 2 : 1, request.rows_at_once = p.rows_at_once % 70;
        request.length_penalty = p.length_penalty, request.patience = p.patience, request.temperature = p.temperature;
        request.top_p = p.top_p, request.min_p = p.min_p, request.repetition_penalty = p.repetition_penalty;
    }
};

constexpr int64_t ROOM = 200;
char problem[ROOM];

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "%s (%s)\n", what, problem);
    abort();
}

// Reads all arrays of a result, whose lengths must be as they are said
void read_result(Result* result, const Shape& shape) {
    int64_t outputs = 0, tokens = 0;
    double sum = 0.0;
    for (int64_t i = 0; i < result->sentences; ++i) outputs += result->counts[i], sum += double(result->numbers[i]);
    for (int64_t i = 0; i < outputs; ++i) {
        tokens += result->token_counts[i], sum += result->scores[i] + result->finished[i];
        require(result->gain_counts[i] - result->token_counts[i] <= 1, "an output has more scores than tokens");
    }
    for (int64_t i = 0; i < tokens; ++i) require(result->tokens[i] >= 0 && result->tokens[i] < shape.target_vocabulary, "an output has an unknown token");
    volatile double all = sum;
    (void)all;
    regard_release(result);
}

void search(void* loaded, const Shape& shape, const Plan& plan) {
    const Texts texts(plan, shape);
    std::vector<int64_t> starts(size_t(shape.source_vocabulary) + 1);
    std::vector<int32_t> tokens, common;
    if (plan.flags & 4 && !shape.decoder_only) {  // with a shortlist, sometimes one that does not fit
        std::minstd_rand random(plan.seed + 2);
        for (size_t i = 1; i < starts.size(); ++i) {
            for (uint32_t j = random() % 3; j > 0; --j) tokens.push_back(int32_t(random() % uint32_t(shape.target_vocabulary)));
            starts[i] = int64_t(tokens.size());
        }
        for (int i = 0; i < plan.begin % 6; ++i) common.push_back(int32_t(random() % uint32_t(shape.target_vocabulary)));
        if (plan.flags & 16 && !tokens.empty()) tokens[tokens.size() / 2] += plan.end;
        const regard::Shortlist list{starts.data(), tokens.data(), common.data(), int64_t(starts.size()), int64_t(tokens.size()), int64_t(common.size())};
        regard_shorten(loaded, &list, problem, ROOM);
    }
    if (!(plan.flags & 8) || plan.seed % 8) {
        if (Result* result = regard_search(loaded, &texts.request, problem, ROOM)) read_result(result, shape);
        return;
    }
    Live* live = regard_open(loaded, &texts.request, problem, ROOM);
    if (!live) return;
    const int64_t first = regard_submit(live, &texts.request, problem, ROOM);
    int64_t left = first < 0 ? 0 : texts.request.count;
    if (left && plan.end & 1) left -= regard_cancel(live, first);
    while (left > 0) {
        Result* result = regard_wait(live, problem, ROOM);
        if (!result) break;
        left -= result->sentences;
        read_result(result, shape);
    }
    regard_close(live);
    regard_free(live);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const char* const SETS[] = {"portable", "avx2", "avx512", ""};
    Plan plan{};
    Shape shape{};
    std::memcpy(&plan, data, std::min(size, sizeof plan));
    data += std::min(size, sizeof plan), size -= std::min(size, sizeof plan);
    plan.form %= 3;
    if (plan.form != RAW) {
        std::memcpy(&shape, data, std::min(size, sizeof shape));
        data += std::min(size, sizeof shape), size -= std::min(size, sizeof shape);
    }
    const std::vector<uint8_t> file = file_of(plan, shape, data, size);
    if (file.size() >= sizeof shape) std::memcpy(&shape, file.data(), sizeof shape);
    if (shape.rotary && int64_t(shape.max_length) * shape.key_width > 1 << 16) return -1;  // bounded, but by seconds
    void* memory = nullptr;
    if (posix_memalign(&memory, 64, file.size())) abort();
    const std::unique_ptr<void, decltype(&free)> owner(std::copy(file.begin(), file.end(), static_cast<uint8_t*>(memory)) - file.size(), free);
    problem[0] = 0;
    const char* kernels = SETS[plan.kernels % 4];
    void* loaded = regard_load_bytes(static_cast<char*>(memory), int64_t(file.size()), *regard_kernels(kernels) ? kernels : "", problem, ROOM);
    require(!loaded == !!problem[0], "refused without a reason, or loaded with one");
    require(loaded || plan.form != FITTED, "a good model is refused");
    if (!loaded) return 0;
    require(Size(shape).bytes() == __int128(file.size()), "a file of another size than its shape is loaded");
    if (SEARCH && shape.max_length <= 1000) search(loaded, shape, plan);
    regard_unload(loaded);
    return 0;
}

// Besides what libFuzzer does: numbers of the header, of the kind that breaks programs
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);
template <class Further> size_t mutate(uint8_t* data, size_t size, unsigned seed, Further further) {
    static const int32_t NUMBERS[] = {0, 1, 2, 3, 4, 15, 16, 17, 63, 64, 65, 255, 1 << 12, 1 << 16, 1 << 24, (1 << 24) + 1, 1 << 30, INT32_MAX, INT32_MIN, -1};
    std::minstd_rand random(seed);
    random.discard(2);
    if (size < sizeof(Plan) + sizeof(Shape) || random() % 2) return further(data, size);
    const size_t fields = (sizeof(Plan) + sizeof(Shape)) / 4;
    for (uint32_t count = 1 + random() % 3; count > 0; --count) {
        const int32_t number = NUMBERS[random() % (sizeof NUMBERS / sizeof *NUMBERS)];
        const size_t place = random() % fields * 4;
        switch (random() % 4) {
            case 0: data[place + random() % 4] = uint8_t(random()); break;
            case 1: data[random() % 4] = uint8_t(random()); break;
            default: std::memcpy(data + place, &number, 4);
        }
    }
    return size;
}

#ifndef REPLAY
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
    return mutate(data, size, seed, [&](uint8_t* bytes, size_t count) { return LLVMFuzzerMutate(bytes, count, most); });
}
#else
int main(int count, char** arguments) {  // random inputs from each file, and the files: HARNESS inputs files...
    const long inputs = std::strtol(arguments[1], nullptr, 10);
    long done = 0;
    for (int i = 2; i < count; ++i) {
        std::ifstream stream(arguments[i], std::ios::binary);
        const std::vector<uint8_t> whole{std::istreambuf_iterator<char>(stream), {}};
        LLVMFuzzerTestOneInput(whole.data(), whole.size());
        std::minstd_rand random(unsigned(i) * 7919u);
        const auto flip = [&](uint8_t* data, size_t size) { return size ? data[random() % size] ^= uint8_t(1 << random() % 8), size : size; };
        for (long j = 0; j < inputs / (count - 2); ++j, ++done) {
            std::vector<uint8_t> input = whole;
            for (uint32_t times = 1 + random() % 4; times > 0; --times) mutate(input.data(), input.size(), unsigned(random()), flip);
            if (random() % 8 == 0) input.resize(random() % (input.size() + 1));
            LLVMFuzzerTestOneInput(input.data(), input.size());
        }
    }
    std::printf("%ld inputs\n", done + count - 2);
}
#endif
