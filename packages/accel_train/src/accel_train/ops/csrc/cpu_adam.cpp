// Adam and AdamW on the CPU: one pass over parameters, gradients, momentum and variance.
//
// A Python extension module that takes addresses and counts; accel_core/ops/cpu_adam.py checks the tensors
// and calls it. It needs ATen's threads alone, so that it compiles in seconds and torch.set_num_threads()
// holds for it.
//
// The result of a step is fixed to the last bit, whatever the number of threads: every operation below is
// one IEEE operation on floats, and `fused(a, b, c)` rounds once. It is also that of DeepSpeed's CPUAdam
// as gcc compiles it, so that a training that offloads its optimizer gives the same loss on both.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <ATen/Parallel.h>

#include "number_formats.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>

namespace {

#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
#define X86 1
#endif

// ---------------------------------------------------------------------------- one step

// What is the same for every element.
struct Scalars {
    float beta1, beta2, one_less_beta1, one_less_beta2;
    float root_correction;  // 1 / sqrt(1 - beta2^step)
    float eps;
    float step_size;  // -lr / (1 - beta1^step)
    float decay;      // AdamW: -lr * weight_decay; Adam: weight_decay
};

enum class Decay { none, gradient, weight };

// a * b + c, rounded once where the processor can, else after each operation.
template <bool fma>
INLINE float fused(float a, float b, float c)
{
#if defined(__GNUC__)
    return fma ? __builtin_fmaf(a, b, c) : a * b + c;
#else
    return fma ? std::fma(a, b, c) : a * b + c;
#endif
}

// `early`: of `x * beta + y * (1 - beta)` the first product is the one that is not rounded. DeepSpeed's
// vector loop leaves the second unrounded, and gcc the first in the loop over what no vector holds.
template <Decay kind, bool fma, bool early, class Parameter, class State>
INLINE void element(const Scalars& s, Parameter* p, const Parameter* g, State* m, State* v)
{
    float gradient = load(g);
    float parameter = load(p);
    if (kind == Decay::gradient) gradient = fused<fma>(parameter, s.decay, gradient);
    const float square = gradient * gradient;
    const float momentum = early ? fused<fma>(load(m), s.beta1, gradient * s.one_less_beta1)
                                 : fused<fma>(gradient, s.one_less_beta1, load(m) * s.beta1);
    const float variance = early ? fused<fma>(load(v), s.beta2, square * s.one_less_beta2)
                                 : fused<fma>(square, s.one_less_beta2, load(v) * s.beta2);
    const float divisor = fused<fma>(std::sqrt(variance), s.root_correction, s.eps);
    if (kind == Decay::weight) parameter = fused<fma>(s.decay, parameter, parameter);
    store(p, fused<fma>(momentum / divisor, s.step_size, parameter));
    store(m, momentum);
    store(v, variance);
}

// ---------------------------------------------------------------------------- loops, one for each processor

struct Range {
    int64_t begin, end;
};

template <class Parameter, class State>
struct Arrays {
    Parameter* p;
    const Parameter* g;
    State* m;
    State* v;
    int64_t count;
};

template <bool fma, bool early, Decay kind, class Parameter, class State>
INLINE void loop(const Scalars& scalars, const Arrays<Parameter, State>& all, Range range)
{
    const Scalars s = scalars;  // a copy of its own, which no store through a pointer can change
    Parameter* const p = all.p;
    const Parameter* const g = all.g;
    State* const m = all.m;
    State* const v = all.v;
    // A line of 64 bytes of floats at a time. Its length is constant and its elements are said to be
    // independent, so that a compiler makes nothing but vectors of it: 22 instructions a line with AVX-512.
    // Without that word gcc asks at every line whether the arrays overlap (it does not heed __restrict__ on
    // variables), and whether the line is a whole one: 110 instructions.
    //
    // Measured in one process against DeepSpeed's loop, in turns, on two cores of an EPYC of family 26 (Zen
    // 5) that other work shared; of the pairs only those in which no thread was interrupted. In the cache (0.8
    // and 8 MiB) 110 instructions took 2.0 x its time, 22 take 1.0 to 1.1 x. In memory (10 million elements)
    // the number of instructions made no difference there, and prefetching did: 0.85 x with it, 0.93 x
    // without. From 256 to 512 elements ahead it hardly matters; 1024 gain less. Slower, or no faster: asking
    // for four or more lines of an array at once, prefetchw, the hints for L2 and for data used once, stores
    // past the cache (the lines have been read already), loading up to eight vectors of each array before
    // computing, as DeepSpeed does, and huge pages.
    constexpr int64_t line = 16, ahead = 512;
    int64_t first = range.begin;
    for (; first + line <= range.end; first += line) {
        PREFETCH(p + first + ahead, 1);
        PREFETCH(g + first + ahead, 0);
        PREFETCH(m + first + ahead, 1);
        PREFETCH(v + first + ahead, 1);
        INDEPENDENT
        for (int64_t i = first; i < first + line; ++i)
            element<kind, fma, early>(s, p + i, g + i, m + i, v + i);
    }
    for (int64_t i = first; i < range.end; ++i) element<kind, fma, early>(s, p + i, g + i, m + i, v + i);
}

template <bool fma, bool early, class Parameter, class State>
INLINE void loops(Decay kind, const Scalars& s, const Arrays<Parameter, State>& all, Range range)
{
    switch (kind) {
    case Decay::none: return loop<fma, early, Decay::none>(s, all, range);
    case Decay::gradient: return loop<fma, early, Decay::gradient>(s, all, range);
    case Decay::weight: return loop<fma, early, Decay::weight>(s, all, range);
    }
}

// The elements that fill whole vectors first, then the rest of the array.
template <bool fma, int width, class Parameter, class State>
INLINE void part(Decay kind, const Scalars& s, const Arrays<Parameter, State>& all, Range range)
{
    const int64_t whole = all.count / width * width;
    loops<fma, false>(kind, s, all, {range.begin, std::min(range.end, whole)});
    loops<fma, true>(kind, s, all, {std::max(range.begin, whole), range.end});
}

template <class Parameter, class State>
using Part = void (*)(Decay, const Scalars&, const Arrays<Parameter, State>&, Range);

#if X86
#if defined(__clang__)
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"), min_vector_width(512)))
#else
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512")))
#endif

template <class Parameter, class State>
AVX512 void part_avx512(Decay kind, const Scalars& s, const Arrays<Parameter, State>& all, Range range)
{
    part<true, 16>(kind, s, all, range);
}

template <class Parameter, class State>
__attribute__((target("avx2,fma"))) void part_avx2(Decay kind, const Scalars& s,
                                                   const Arrays<Parameter, State>& all, Range range)
{
    part<true, 8>(kind, s, all, range);
}
#endif

// What every processor of this architecture has: NEON on 64-bit ARM, SSE2 without fused operations on x86.
template <class Parameter, class State>
void part_base(Decay kind, const Scalars& s, const Arrays<Parameter, State>& all, Range range)
{
#if defined(__FP_FAST_FMAF)
    part<true, 4>(kind, s, all, range);
#else
    part<false, 1>(kind, s, all, range);
#endif
}

// Asked of the processor that runs this, so that a library that was built elsewhere is safe. torch's own
// variable ATEN_CPU_CAPABILITY can ask for less than the processor has: "avx2", "default".
const char* find_capability()
{
#if X86
    const char* const variable = std::getenv("ATEN_CPU_CAPABILITY");
    const std::string most = variable ? variable : "";
    if (most == "default") return "baseline";
    __builtin_cpu_init();
    if (most != "avx2" && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return "AVX512";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "AVX2";
#elif defined(__ARM_NEON)
    return "NEON";
#endif
    return "baseline";
}

const char* const capability = find_capability();

template <class Parameter, class State>
Part<Parameter, State> best_part()
{
#if X86
    if (!std::strcmp(capability, "AVX512")) return part_avx512<Parameter, State>;
    if (!std::strcmp(capability, "AVX2")) return part_avx2<Parameter, State>;
#endif
    return part_base<Parameter, State>;
}

template <class Parameter, class State>
void step(Decay kind, const Scalars& s, void* p, const void* g, void* m, void* v, int64_t count)
{
    const Arrays<Parameter, State> all{static_cast<Parameter*>(p), static_cast<const Parameter*>(g),
                                       static_cast<State*>(m), static_cast<State*>(v), count};
    const auto run = best_part<Parameter, State>();
    // Whole blocks, so that two threads share neither a vector nor a cache line.
    constexpr int64_t block = 1024;
    at::parallel_for(0, at::divup(count, block), 16, [&](int64_t first, int64_t last) {
        run(kind, s, all, {first * block, std::min(last * block, count)});
    });
}

// ---------------------------------------------------------------------------- optimizers

struct Optimizer {
    float beta1, beta2;
    bool adamw;
    float beta1_power = 1, beta2_power = 1;
    uint64_t steps = 0;

    // From one step to the next the powers are multiplied on in float; after a jump they are computed anew.
    void advance(uint64_t to, float new_beta1, float new_beta2)
    {
        const bool same = new_beta1 == beta1 && new_beta2 == beta2;
        if (same && to == steps) return;  // the next parameter of the same step
        if (same && to == steps + 1) {
            beta1_power *= beta1;
            beta2_power *= beta2;
        } else {
            beta1 = new_beta1;
            beta2 = new_beta2;
            beta1_power = float(std::pow(double(beta1), double(to)));
            beta2_power = float(std::pow(double(beta2), double(to)));
        }
        steps = to;
    }
};

std::unordered_map<long long, Optimizer> optimizers;

enum Format { float32 = 0, bfloat16 = 1, float16 = 2 };

// What `update` and `rollback` are given.
struct Call {
    long long id;
    unsigned long long step;
    float lr, beta1, beta2, eps, weight_decay;
    int bias_correction;
    unsigned long long p, g, m, v;
    long long count;
    int parameter_format, state_format;

    Optimizer* parse(PyObject* args)
    {
        if (!PyArg_ParseTuple(args, "LKfffffpKKKKLii", &id, &step, &lr, &beta1, &beta2, &eps, &weight_decay,
                              &bias_correction, &p, &g, &m, &v, &count, &parameter_format, &state_format))
            return nullptr;
        const auto found = optimizers.find(id);
        if (found == optimizers.end()) {
            PyErr_Format(PyExc_LookupError, "there is no optimizer %lld: create_adam(%lld, ...) comes first", id,
                         id);
            return nullptr;
        }
        return &found->second;
    }
};

template <class T>
T* pointer(unsigned long long address)
{
    return reinterpret_cast<T*>(static_cast<uintptr_t>(address));
}

PyObject* update(PyObject*, PyObject* args)
{
    Call call;
    Optimizer* const optimizer = call.parse(args);
    if (!optimizer) return nullptr;
    optimizer->advance(call.step, call.beta1, call.beta2);

    float correction1 = 1, correction2 = 1;
    if (call.bias_correction) {
        correction1 = 1 - optimizer->beta1_power;
        correction2 = 1 / std::sqrt(1 - optimizer->beta2_power);
    }
    Decay kind = Decay::none;
    if (call.weight_decay > 0) kind = optimizer->adamw ? Decay::weight : Decay::gradient;
    const Scalars s{call.beta1, call.beta2, 1 - call.beta1, 1 - call.beta2, correction2, call.eps,
                    -call.lr / correction1,
                    kind == Decay::weight ? -call.lr * call.weight_decay : call.weight_decay};

    using Step = void (*)(Decay, const Scalars&, void*, const void*, void*, void*, int64_t);
    Step run = nullptr;
    switch (call.parameter_format * 4 + call.state_format) {
    case float32 * 4 + float32: run = step<float, float>; break;
    case bfloat16 * 4 + float32: run = step<BFloat16, float>; break;
    case bfloat16 * 4 + bfloat16: run = step<BFloat16, BFloat16>; break;
    case float16 * 4 + float32: run = step<Half, float>; break;
    case float16 * 4 + float16: run = step<Half, Half>; break;
    default:
        PyErr_SetString(PyExc_TypeError, "states are float32, or of the parameters' type");
        return nullptr;
    }
    Py_BEGIN_ALLOW_THREADS;
    run(kind, s, pointer<void>(call.p), pointer<void>(call.g), pointer<void>(call.m), pointer<void>(call.v),
        call.count);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

// Undo `update` of the same step: first the parameter, then what momentum and variance were made of.
PyObject* rollback(PyObject*, PyObject* args)
{
    Call call;
    const Optimizer* const optimizer = call.parse(args);
    if (!optimizer) return nullptr;
    if (call.parameter_format != float32 || call.state_format != float32) {
        PyErr_SetString(PyExc_TypeError, "a step can be rolled back in float32 only: other types have lost it");
        return nullptr;
    }
    const double power = double(call.step);
    const float correction1 = call.bias_correction ? float(1 - std::pow(double(call.beta1), power)) : 1.0f;
    const float correction2 = call.bias_correction ? float(1 - std::pow(double(call.beta2), power)) : 1.0f;
    const bool decays = call.weight_decay > 0;
    const float kept = decays && optimizer->adamw ? 1 - call.lr * call.weight_decay : 1.0f;
    if (kept == 0) {
        PyErr_SetString(PyExc_ValueError, "a step with lr * weight_decay = 1 cannot be undone");
        return nullptr;
    }
    const float on_gradient = decays && !optimizer->adamw ? call.weight_decay : 0.0f;
    auto* const p = pointer<float>(call.p);
    const auto* const g = pointer<const float>(call.g);
    auto* const m = pointer<float>(call.m);
    auto* const v = pointer<float>(call.v);

    Py_BEGIN_ALLOW_THREADS;
    at::parallel_for(0, call.count, 16384, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const float divisor = std::sqrt(v[i] / correction2) + call.eps;
            const float before = (p[i] + call.lr * (m[i] / correction1) / divisor) / kept;
            p[i] = std::isfinite(before) ? before : 0.0f;
            const float gradient = g[i] + on_gradient * p[i];
            m[i] = (m[i] - (1 - call.beta1) * gradient) / call.beta1;
            // Rounding may leave a little less than nothing, and the next step takes the root.
            v[i] = std::max(0.0f, (v[i] - (1 - call.beta2) * gradient * gradient) / call.beta2);
        }
    });
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

PyObject* create(PyObject*, PyObject* args)
{
    long long id;
    int adamw;
    float beta1, beta2;
    if (!PyArg_ParseTuple(args, "Lffp", &id, &beta1, &beta2, &adamw)) return nullptr;
    Optimizer made;
    made.beta1 = beta1;
    made.beta2 = beta2;
    made.adamw = adamw != 0;
    optimizers[id] = made;
    Py_RETURN_NONE;
}

PyObject* destroy(PyObject*, PyObject* args)
{
    long long id;
    if (!PyArg_ParseTuple(args, "L", &id)) return nullptr;
    optimizers.erase(id);
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"create", create, METH_VARARGS, "create(id, beta1, beta2, adamw)"},
    {"update", update, METH_VARARGS,
     "update(id, step, lr, beta1, beta2, eps, weight_decay, bias_correction, p, g, m, v, count, format, "
     "state_format): addresses of contiguous arrays; a format is 0 float32, 1 bfloat16, 2 float16"},
    {"rollback", rollback, METH_VARARGS, "rollback(...): what update takes"},
    {"destroy", destroy, METH_VARARGS, "destroy(id)"},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "cpu_adam", "Adam and AdamW on the CPU.", -1, methods,
                          nullptr, nullptr, nullptr, nullptr};

}  // namespace

#define MODULE_INIT_(name) PyInit_##name
#define MODULE_INIT(name) MODULE_INIT_(name)

PyMODINIT_FUNC MODULE_INIT(TORCH_EXTENSION_NAME)()
{
    PyObject* const module = PyModule_Create(&definition);
    if (module && PyModule_AddStringConstant(module, "capability", capability) < 0) {
        Py_DECREF(module);
        return nullptr;
    }
    return module;
}
