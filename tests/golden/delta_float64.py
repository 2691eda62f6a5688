"""Gated delta nets of transformers in float64: their modules cast to float32 whatever the model's type is. The rule is the recurrence,
  S <- e^g S;  S <- S + k (beta (v - S^T k))^T;  o = S^T q
with q and k of length one, q times d^-1/2, a zero state before each sample."""
import torch
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe
from transformers.models.qwen3_next import modeling_qwen3_next
FAMILIES=("qwen3_5","qwen3_5_moe","qwen3_next")
MODULES=(modeling_qwen3_5,modeling_qwen3_5_moe,modeling_qwen3_next)

def unit(x): return x*torch.rsqrt((x*x).sum(-1,keepdim=True)+1e-6)

def delta_rule(query,key,value,g,beta,**others):
    assert others.get('initial_state') is None and others['use_qk_l2norm_in_kernel']
    group=value.shape[2]//key.shape[2]
    q=unit(query).repeat_interleave(group,2)*key.shape[3]**-0.5; k=unit(key).repeat_interleave(group,2)
    state=value.new_zeros(value.shape[0],value.shape[2],key.shape[3],value.shape[3]); rows=[]
    for t in range(value.shape[1]):
        state=state*g[:,t].exp()[...,None,None]
        error=value[:,t]-torch.einsum('bhkv,bhk->bhv',state,k[:,t])
        state=state+torch.einsum('bhk,bhv->bhkv',k[:,t],beta[:,t,:,None]*error)
        rows.append(torch.einsum('bhkv,bhk->bhv',state,q[:,t]))
    return torch.stack(rows,1),state

def gated_norm(self,hidden_states,gate):
    normed=hidden_states*torch.rsqrt(hidden_states.pow(2).mean(-1,keepdim=True)+self.variance_epsilon)
    return self.weight*normed*torch.nn.functional.silu(gate)

ORIGINALS=[(torch.Tensor,'float',torch.Tensor.float)]
for module in MODULES:
    norm=next(c for n,c in vars(module).items() if n.endswith('RMSNormGated'))
    ORIGINALS+=[(module,'torch_chunk_gated_delta_rule',module.torch_chunk_gated_delta_rule),(norm,'forward',norm.forward)]
OTHERS={'float':torch.Tensor.double,'torch_chunk_gated_delta_rule':delta_rule,'forward':gated_norm}

def switch(on):
    for owner,name,original in ORIGINALS: setattr(owner,name,OTHERS[name] if on else original)
